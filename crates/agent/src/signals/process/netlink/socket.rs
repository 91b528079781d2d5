//! The netlink socket of the proc connector.

use std::io;
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::netlink::{CONNECTOR, SocketAddrNetlink};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use socket2::{SockFilter, SockRef};

use super::message::{self, Event, PROC_EVENT_COMM, PROC_EVENT_EXEC, PROC_EVENT_NONE, WHAT_OFFSET};

/// Holds about ten thousand events: the kernel doubles the size and accounts 832 bytes for each.
const QUEUE_BYTES: usize = 4 << 20;

/// A datagram has 76 bytes; a page leaves room for kernels that batch messages.
const DATAGRAM_BYTES: usize = 4096;

/// More than the queue holds: the kernel adds nothing until it is empty.
const MAX_DRAINED: usize = 1 << 14;

pub(super) struct Socket {
    fd: OwnedFd,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received {
    Events(Vec<Event>),
    /// The queue overflowed, or a message was truncated or malformed.
    Lost,
    /// A timeout, an interrupted call or a message that is not from the kernel.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drained {
    Empty,
    /// Events arrive faster than they are read, or the queue overflowed again.
    LimitReached,
}

pub(super) fn buffer() -> Box<[u8]> {
    vec![0; DATAGRAM_BYTES].into_boxed_slice()
}

impl Socket {
    pub(super) fn open() -> io::Result<Self> {
        Socket::with_queue(QUEUE_BYTES)
    }

    /// The filter is attached before the socket joins the group: events in between would bypass it.
    pub(super) fn with_queue(bytes: usize) -> io::Result<Self> {
        let fd = net::socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(CONNECTOR))?;
        // SO_RCVBUFFORCE needs CAP_NET_ADMIN; SO_RCVBUF is limited by rmem_max.
        sockopt::set_socket_recv_buffer_size_force(&fd, bytes)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&fd, bytes))?;
        SockRef::from(&fd).attach_filter(&filter())?;
        net::bind(&fd, &SocketAddrNetlink::new(0, message::CN_IDX_PROC))?;
        Ok(Socket { fd })
    }

    /// Sends to the kernel (port 0).
    pub(super) fn send(&self, message: &[u8]) -> io::Result<()> {
        net::sendto(&self.fd, message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        Ok(())
    }

    /// `None` waits forever.
    pub(super) fn set_receive_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        // The kernel counts microseconds and reads zero as no timeout.
        let timeout = timeout.map(|it| it.max(Duration::from_millis(1)));
        Ok(sockopt::set_socket_timeout(&self.fd, Timeout::Recv, timeout)?)
    }

    /// Drops what is queued, without blocking. Another overflow (ENOBUFS) says nothing new.
    pub(super) fn drain(&self, buffer: &mut [u8]) -> io::Result<Drained> {
        for _ in 0..MAX_DRAINED {
            match net::recvfrom(&self.fd, &mut *buffer, RecvFlags::DONTWAIT) {
                Ok(_) | Err(Errno::NOBUFS | Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Drained::Empty),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Drained::LimitReached)
    }

    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        let capacity = buffer.len();
        let (read, length, sender) = match net::recvfrom(&self.fd, &mut *buffer, RecvFlags::TRUNC) {
            Ok((read, length, sender)) => (read, length, sender),
            Err(Errno::NOBUFS) => return Ok(Received::Lost),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Received::Nothing),
            Err(error) => return Err(error.into()),
        };
        // Privileged processes may send to the group as well; only port 0 is the kernel.
        let sender = sender.and_then(|address| SocketAddrNetlink::try_from(address).ok());
        if sender.is_none_or(|address| address.pid() != 0) {
            return Ok(Received::Nothing);
        }
        if length > capacity {
            return Ok(Received::Lost);
        }
        Ok(message::parse(&buffer[..read]).map_or(Received::Lost, Received::Events))
    }
}

/// Passes acknowledgements, exec and comm events, so that forks and exits neither wake the agent nor fill its queue.
/// Classic BPF loads words in network byte order, hence the swapped constants.
fn filter() -> [SockFilter; 6] {
    const LOAD_WORD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
    const JUMP_IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    let what_offset = u32::try_from(WHAT_OFFSET).expect("an offset in a short message");
    [
        SockFilter::new(LOAD_WORD, 0, 0, what_offset),
        SockFilter::new(JUMP_IF_EQUAL, 3, 0, PROC_EVENT_NONE.to_be()),
        SockFilter::new(JUMP_IF_EQUAL, 2, 0, PROC_EVENT_EXEC.to_be()),
        SockFilter::new(JUMP_IF_EQUAL, 1, 0, PROC_EVENT_COMM.to_be()),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ]
}
