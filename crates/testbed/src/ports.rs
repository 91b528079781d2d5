//! Loopback ports that nobody else takes between our choosing one and a server's binding it.
//!
//! They lie below the range from which the kernel serves outgoing connections, and each is claimed by a lock file that
//! every testbed of the cache directory respects and the kernel releases when its holder dies. A stranger can still be
//! faster: servers that find their port taken are started again with others.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A claimed port; free again when dropped.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _claim: File,
}

impl Port {
    pub(crate) fn claim(cache: &Path) -> io::Result<Self> {
        let claims = cache.join("ports");
        fs::create_dir_all(&claims)?;
        let start = u16::try_from(RandomState::new().hash_one(std::process::id()) % u64::from(COUNT))
            .expect("a remainder of a u16 fits one");
        for step in 0..COUNT {
            let number = FIRST + (start + step) % COUNT;
            let claim = File::create(claims.join(number.to_string()))?;
            if claim.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Ok(Self { number, _claim: claim });
            }
        }
        Err(io::Error::other(format!("no loopback port from {FIRST} to {} is free", FIRST + COUNT - 1)))
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claimed_port_is_not_given_twice_and_can_be_bound() {
        let cache = tempfile::tempdir().unwrap();
        let ports: Vec<Port> = (0..50).map(|_| Port::claim(cache.path()).unwrap()).collect();
        let mut numbers: Vec<u16> = ports.iter().map(Port::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 50);
        TcpListener::bind((Ipv4Addr::LOCALHOST, numbers[0])).unwrap();
    }
}
