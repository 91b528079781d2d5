//! The minimal reader of the proc connector: reads each event, reads the name of the process, compares it.

use std::fs;
use std::io::Write as _;

use jiff::Timestamp;
use rustix::net::netlink::{CONNECTOR, SocketAddrNetlink};
use rustix::net::sockopt;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// Runs the benchmark binary as this reader.
pub(crate) const ARGUMENT: &str = "--bare-reader";

/// `struct nlmsghdr` and `struct cn_msg` with `PROC_CN_MCAST_LISTEN`.
const LISTEN: [u32; 10] = [40, 3, 0, 0, 1, 1, 0, 0, 4, 1];
/// Offsets of the event type, and of the pid of an exec event.
const WHAT_OFFSET: usize = 36;
const PID_OFFSET: usize = 56;
const PROC_EVENT_EXEC: u32 = 2;

pub(crate) fn run(names: &[String]) -> ! {
    let socket =
        net::socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(CONNECTOR)).unwrap();
    sockopt::set_socket_recv_buffer_size_force(&socket, 4 << 20).unwrap();
    net::bind(&socket, &SocketAddrNetlink::new(0, 1)).unwrap();
    let listen: Vec<u8> = LISTEN.iter().flat_map(|word| word.to_ne_bytes()).collect();
    net::sendto(&socket, &listen, SendFlags::empty(), &SocketAddrNetlink::new(0, 0)).unwrap();
    let mut out = std::io::stdout();
    writeln!(out, "{{\"event\":\"armed\"}}").unwrap();
    let mut buffer = [0_u8; 4096];
    loop {
        let Ok((read, _)) = net::recv(&socket, &mut buffer[..], RecvFlags::empty()) else { continue };
        let word = |offset: usize| u32::from_ne_bytes(buffer[offset..offset + 4].try_into().unwrap());
        if read < PID_OFFSET + 4 || word(WHAT_OFFSET) != PROC_EVENT_EXEC {
            continue;
        }
        let pid = word(PID_OFFSET);
        let Ok(comm) = fs::read_to_string(format!("/proc/{pid}/comm")) else { continue };
        if names.iter().any(|name| name == comm.trim_end()) {
            writeln!(out, "{{\"event\":\"match\",\"pid\":{pid},\"at\":\"{}\"}}", Timestamp::now()).unwrap();
        }
    }
}
