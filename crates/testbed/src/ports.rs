//! Loopback ports for servers that cannot bind port 0.
//!
//! The ports are below the kernel's ephemeral range. A lock file claims each port among all testbeds with the same cache
//! directory; the kernel releases it when its holder dies. Another program can still bind the port first: servers whose
//! port is taken are restarted with another one.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A claimed port. Released when dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _claim: File,
}

impl Port {
    /// Claims a free port; `cache` is [`crate::artifacts::Artifacts::cache`].
    pub fn claim(cache: &Path) -> io::Result<Self> {
        let claims = cache.join("ports");
        fs::create_dir_all(&claims)?;
        let start = u16::try_from(RandomState::new().hash_one(std::process::id()) % u64::from(COUNT))
            .expect("the remainder of a division by a u16 fits in a u16");
        for step in 0..COUNT {
            let number = FIRST + (start + step) % COUNT;
            let claim = File::create(claims.join(number.to_string()))?;
            if claim.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Ok(Self { number, _claim: claim });
            }
        }
        Err(io::Error::other(format!("no loopback port from {FIRST} to {} is free", FIRST + COUNT - 1)))
    }

    pub fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claimed_ports_are_distinct_and_can_be_bound() {
        let cache = tempfile::tempdir().unwrap();
        let ports: Vec<Port> = (0..50).map(|_| Port::claim(cache.path()).unwrap()).collect();
        let mut numbers: Vec<u16> = ports.iter().map(Port::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 50);
        TcpListener::bind((Ipv4Addr::LOCALHOST, numbers[0])).unwrap();
    }
}
