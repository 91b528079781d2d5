//! The connector's socket: opened, filtered, read.

use std::io;
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::netlink::{CONNECTOR, SocketAddrNetlink};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use socket2::{SockFilter, SockRef};

use super::message::{self, ACKNOWLEDGED, COMM, EXEC, Event, WHAT_AT};

/// Room for about ten thousand events: the kernel doubles it, and counts 832 bytes for each.
const QUEUE: usize = 4 << 20;

/// A datagram is 76 bytes; a page has room for one of many messages, should a kernel ever send that.
const DATAGRAM: usize = 4096;

pub(super) struct Socket {
    fd: OwnedFd,
}

/// What one read has brought.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received {
    Events(Vec<Event>),
    /// Events there were, but not all of them can be read.
    Lost,
    /// Nothing of the kernel's, or nothing in time.
    Nothing,
}

/// Room for a datagram.
pub(super) fn buffer() -> Box<[u8]> {
    vec![0; DATAGRAM].into_boxed_slice()
}

impl Socket {
    pub(super) fn open() -> io::Result<Self> {
        Socket::with_queue(QUEUE)
    }

    /// The filter comes before the membership: otherwise what is sent in between passes it by.
    pub(super) fn with_queue(bytes: usize) -> io::Result<Self> {
        let fd = net::socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(CONNECTOR))?;
        // Beyond the machine's limit with CAP_NET_ADMIN, up to it without.
        sockopt::set_socket_recv_buffer_size_force(&fd, bytes)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&fd, bytes))?;
        SockRef::from(&fd).attach_filter(&filter())?;
        net::bind(&fd, &SocketAddrNetlink::new(0, message::CN_PROC))?;
        Ok(Socket { fd })
    }

    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(Socket { fd: self.fd.try_clone()? })
    }

    /// Sends to the kernel, which is port 0.
    pub(super) fn send(&self, message: &[u8]) -> io::Result<()> {
        net::sendto(&self.fd, message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        Ok(())
    }

    /// How long a read waits; `None` is for ever.
    pub(super) fn wait_at_most(&self, patience: Option<Duration>) -> io::Result<()> {
        // The kernel counts in microseconds, and takes none of them for no limit at all.
        let patience = patience.map(|it| it.max(Duration::from_millis(1)));
        Ok(sockopt::set_socket_timeout(&self.fd, Timeout::Recv, patience)?)
    }

    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        let room = buffer.len();
        let (read, length, sender) = match net::recvfrom(&self.fd, &mut *buffer, RecvFlags::TRUNC) {
            Ok((read, length, sender)) => (read, length, sender),
            Err(Errno::NOBUFS) => return Ok(Received::Lost),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Received::Nothing),
            Err(error) => return Err(error.into()),
        };
        // Anybody with the right may send to the group; only port 0 is the kernel.
        let sender = sender.and_then(|it| SocketAddrNetlink::try_from(it).ok());
        if sender.is_none_or(|it| it.pid() != 0) {
            return Ok(Received::Nothing);
        }
        if length > room {
            return Ok(Received::Lost);
        }
        Ok(message::events(&buffer[..read]).map_or(Received::Lost, Received::Events))
    }
}

/// Lets acknowledgements, started programs and names through, so that forks and exits never wake the agent nor fill its
/// queue. Classic BPF reads words in network order, so the constants are in it too.
fn filter() -> [SockFilter; 6] {
    const LOAD_WORD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
    const JUMP_IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    let what_at = u32::try_from(WHAT_AT).expect("an offset in a short message");
    [
        SockFilter::new(LOAD_WORD, 0, 0, what_at),
        SockFilter::new(JUMP_IF_EQUAL, 3, 0, ACKNOWLEDGED.to_be()),
        SockFilter::new(JUMP_IF_EQUAL, 2, 0, EXEC.to_be()),
        SockFilter::new(JUMP_IF_EQUAL, 1, 0, COMM.to_be()),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ]
}
