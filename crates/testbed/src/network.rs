//! A network namespace whose established connections can be made to lose all packets silently.
//!
//! A process holds the namespace, so the kernel removes it, its devices and its addresses when this process dies.

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use crate::node::packages::{self, Unavailable};
use crate::process::{Process, ProcessError};

/// Required programs and their Debian packages.
const PROGRAMS: [(&str, &str); 3] = [("ip", "iproute2"), ("unshare", "util-linux"), ("nsenter", "util-linux")];
const DEVICE: &str = "eth0";
/// No device has this address, so that packets to it reach no one.
const NOWHERE: &str = "02:00:00:00:00:01";
/// How long the holder may take to enter its namespace.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// A network namespace that is connected with the host's by a pair of devices. Removed when dropped.
#[derive(Debug)]
pub struct NetworkNamespace {
    holder: Process,
    /// The third byte of all addresses, and part of the device's name on the host.
    number: u8,
}

/// Why a network namespace cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    #[error(transparent)]
    Holder(#[from] ProcessError),
    #[error("cannot run {command}: {source}")]
    Run { command: String, source: io::Error },
    #[error("{command} failed: {stderr}")]
    Failed { command: String, stderr: String },
    #[error("the network namespace was not entered within {} s", START_TIMEOUT.as_secs())]
    NotEntered,
    #[error("no free address range")]
    NoFreeRange,
}

impl NetworkNamespace {
    /// Whether a network namespace can be created here. If not, prints why; with `CI=true` it panics instead, because CI
    /// must not skip tests.
    pub fn is_possible() -> bool {
        packages::is_possible(packages::ensure_programs(&PROGRAMS))
    }

    /// Creates a namespace; its holder logs into `logs`. Needs root.
    pub fn create(logs: &Path) -> Result<Self, NetworkError> {
        packages::ensure_programs(&PROGRAMS)?;
        let holder =
            Process::spawn("network-namespace", Command::new("unshare").args(["--net", "sleep", "inf"]), logs)?;
        await_namespace(holder.pid())?;
        let peer = holder.pid().to_string();
        let [first, ..] = holder.pid().to_le_bytes();
        // Each number is free unless another namespace of this kind exists.
        let free = (0..=u8::MAX).map(|it| first.wrapping_add(it)).find(|number| {
            let device = device_on_host(*number);
            let add = ["link", "add", &device, "type", "veth", "peer", "name", DEVICE, "netns", &peer];
            run("ip", &add.map(str::to_owned)).is_ok()
        });
        let namespace = Self { holder, number: free.ok_or(NetworkError::NoFreeRange)? };
        let device = device_on_host(namespace.number);
        let host = format!("{}/24", namespace.host_address());
        on_host(&["addr", "add", &host, "dev", &device])?;
        on_host(&["link", "set", &device, "up"])?;
        namespace.inside(&["link", "set", "lo", "up"])?;
        namespace.inside(&["addr", "add", &format!("{}/24", namespace.address(2)), "dev", DEVICE])?;
        namespace.inside(&["link", "set", DEVICE, "up"])?;
        Ok(namespace)
    }

    /// The address of the host, as seen from the namespace. Processes of the host can listen on it.
    pub fn host_address(&self) -> Ipv4Addr {
        self.address(1)
    }

    /// A command that runs a program in the namespace.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path().display())).arg("--").arg(program);
        command
    }

    /// From now on all packets of the connections that exist are lost without an error. New connections work.
    ///
    /// New connections have another source address. The namespace cannot send from the first one any more, and packets from the
    /// host to it reach no device.
    pub fn cut_established_connections(&self) -> Result<(), NetworkError> {
        let (host, next) = (self.host_address().to_string(), self.address(3).to_string());
        // Not in the range of the first address, with which the kernel would remove it.
        self.inside(&["addr", "add", &format!("{next}/32"), "dev", DEVICE])?;
        self.inside(&["route", "replace", &host, "dev", DEVICE, "src", &next])?;
        let (first, device) = (self.address(2).to_string(), device_on_host(self.number));
        self.inside(&["addr", "del", &format!("{first}/24"), "dev", DEVICE])?;
        on_host(&["neigh", "replace", &first, "lladdr", NOWHERE, "dev", &device, "nud", "permanent"])
    }

    fn address(&self, host: u8) -> Ipv4Addr {
        // A range for tests of network devices, which no other network uses.
        Ipv4Addr::new(198, 18, self.number, host)
    }

    fn path(&self) -> PathBuf {
        namespace_of(self.holder.pid())
    }

    fn inside(&self, args: &[&str]) -> Result<(), NetworkError> {
        let net = format!("--net={}", self.path().display());
        let args: Vec<String> = [net.as_str(), "--", "ip"].iter().chain(args).map(|it| (*it).to_owned()).collect();
        run("nsenter", &args)
    }
}

fn on_host(args: &[&str]) -> Result<(), NetworkError> {
    run("ip", &args.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>())
}

fn run(program: &str, args: &[String]) -> Result<(), NetworkError> {
    let command = || format!("{program} {}", args.join(" "));
    let output = Command::new(program).args(args).env("PATH", packages::search_path()).output();
    let Output { status, stderr, .. } = output.map_err(|source| NetworkError::Run { command: command(), source })?;
    if status.success() {
        return Ok(());
    }
    Err(NetworkError::Failed { command: command(), stderr: String::from_utf8_lossy(&stderr).trim().to_owned() })
}

/// Waits until the process has left this process's namespace.
fn await_namespace(pid: u32) -> Result<(), NetworkError> {
    let until = std::time::Instant::now() + START_TIMEOUT;
    let own = std::fs::read_link("/proc/self/ns/net").ok();
    loop {
        let entered = std::fs::read_link(namespace_of(pid)).ok();
        if entered.is_some() && entered != own {
            return Ok(());
        }
        if std::time::Instant::now() > until {
            return Err(NetworkError::NotEntered);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn namespace_of(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/ns/net"))
}

fn device_on_host(number: u8) -> String {
    format!("fivespot{number}")
}
