//! The least that a reader of the proc connector can do: read each event, read the name of what was started, compare.

use std::fs;
use std::io::Write as _;

use jiff::Timestamp;
use rustix::net::netlink::{CONNECTOR, SocketAddrNetlink};
use rustix::net::sockopt;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// What the measurement is called with to be this reader.
pub(crate) const ARGUMENT: &str = "--bare-reader";

/// `struct nlmsghdr`, `struct cn_msg`, and what is asked for: `PROC_CN_MCAST_LISTEN`.
const LISTEN: [u32; 10] = [40, 3, 0, 0, 1, 1, 0, 0, 4, 1];
/// Where an event says what it is, and which process it is of; the latter for a start.
const WHAT: usize = 36;
const PROCESS: usize = 56;
const EXEC: u32 = 2;

/// Reads until it is ended.
pub(crate) fn run(names: &[String]) -> ! {
    let socket =
        net::socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(CONNECTOR)).unwrap();
    sockopt::set_socket_recv_buffer_size_force(&socket, 4 << 20).unwrap();
    net::bind(&socket, &SocketAddrNetlink::new(0, 1)).unwrap();
    let listen: Vec<u8> = LISTEN.iter().flat_map(|it| it.to_ne_bytes()).collect();
    net::sendto(&socket, &listen, SendFlags::empty(), &SocketAddrNetlink::new(0, 0)).unwrap();
    let mut out = std::io::stdout();
    writeln!(out, "{{\"event\":\"armed\"}}").unwrap();
    let mut buffer = [0_u8; 4096];
    loop {
        let Ok((read, _)) = net::recv(&socket, &mut buffer[..], RecvFlags::empty()) else { continue };
        let word = |at: usize| u32::from_ne_bytes(buffer[at..at + 4].try_into().unwrap());
        if read < PROCESS + 4 || word(WHAT) != EXEC {
            continue;
        }
        let pid = word(PROCESS);
        let Ok(name) = fs::read_to_string(format!("/proc/{pid}/comm")) else { continue };
        if names.iter().any(|it| it == name.trim_end()) {
            writeln!(out, "{{\"event\":\"match\",\"pid\":{pid},\"at\":\"{}\"}}", Timestamp::now()).unwrap();
        }
    }
}
