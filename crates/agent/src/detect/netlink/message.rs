//! The connector's messages, bytes to events. Pure. The layouts are the kernel's stable interface:
//! `nlmsghdr` (`netlink.h`), then `cn_msg` (`connector.h`), then `proc_event` (`cn_proc.h`), in the machine's byte order.

/// `CN_IDX_PROC`, also the number of the multicast group, and `CN_VAL_PROC`.
pub(super) const CN_PROC: u32 = 1;

const NETLINK_HEADER: usize = 16;
const CONNECTOR_HEADER: usize = 20;
/// Where the type of the event is, in a message and, for the filter, in a datagram.
pub(super) const WHAT_AT: usize = NETLINK_HEADER + CONNECTOR_HEADER;
/// Behind the event's type, its processor and its time.
const DATA_AT: usize = WHAT_AT + 16;
const COMM_LENGTH: usize = 16;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSG_OVERRUN: u16 = 4;

pub(super) const ACKNOWLEDGED: u32 = 0;
pub(super) const EXEC: u32 = 2;
pub(super) const COMM: u32 = 0x200;

const LISTEN: u32 = 1;
const IGNORE: u32 = 2;

/// What the kernel tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// It has heard a subscription: the number that came with it and one, and 0 or why not.
    Acknowledged { number: u32, error: u32 },
    /// A thread runs another program. It is the process's only one by then.
    Started { process: u32 },
    /// A thread has been given a name.
    Renamed { thread: u32, process: u32, name: Vec<u8> },
}

impl Event {
    /// The process to look at. Its name is that of its first thread, so others may be called what they like.
    pub(super) fn process_of_interest(&self) -> Option<u32> {
        match self {
            Event::Started { process } => Some(*process),
            Event::Renamed { thread, process, .. } => (thread == process).then_some(*process),
            Event::Acknowledged { .. } => None,
        }
    }
}

/// A datagram that does not hold what it says: something has been lost.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// All events of a datagram. Types that are not known are passed over.
pub(super) fn events(datagram: &[u8]) -> Result<Vec<Event>, Broken> {
    let mut events = Vec::new();
    let mut rest = datagram;
    while !rest.is_empty() {
        let length = word(rest, 0).and_then(|it| usize::try_from(it).ok()).ok_or(Broken)?;
        let message = rest.get(..length).filter(|_| length >= NETLINK_HEADER).ok_or(Broken)?;
        // The connector calls every message the last one.
        match half(message, 4).ok_or(Broken)? {
            NLMSG_DONE => events.extend(event(message)?),
            NLMSG_ERROR | NLMSG_OVERRUN => return Err(Broken),
            _ => {}
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(events)
}

fn event(message: &[u8]) -> Result<Option<Event>, Broken> {
    let at = |offset| word(message, offset).ok_or(Broken);
    if (at(NETLINK_HEADER)?, at(NETLINK_HEADER + 4)?) != (CN_PROC, CN_PROC) {
        return Ok(None);
    }
    Ok(match at(WHAT_AT)? {
        ACKNOWLEDGED => Some(Event::Acknowledged { number: at(NETLINK_HEADER + 12)?, error: at(DATA_AT)? }),
        EXEC => Some(Event::Started { process: at(DATA_AT + 4)? }),
        COMM => {
            let name = message.get(DATA_AT + 8..DATA_AT + 8 + COMM_LENGTH).ok_or(Broken)?;
            let name = name.split(|it| *it == 0).next().unwrap_or_default().to_vec();
            Some(Event::Renamed { thread: at(DATA_AT)?, process: at(DATA_AT + 4)?, name })
        }
        _ => None,
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Asks for events. The acknowledgement has this number and one.
pub(super) fn listen(number: u32) -> Vec<u8> {
    request(number, LISTEN)
}

/// Asks for no more.
pub(super) fn ignore() -> Vec<u8> {
    request(0, IGNORE)
}

fn request(number: u32, operation: u32) -> Vec<u8> {
    wrap(number, &operation.to_ne_bytes())
}

/// A connector message with this number and this body.
fn wrap(number: u32, body: &[u8]) -> Vec<u8> {
    let length = NETLINK_HEADER + CONNECTOR_HEADER + body.len();
    let short = |it: usize| u16::try_from(it).expect("a message is short").to_ne_bytes();
    let mut message = Vec::with_capacity(length);
    message.extend(u32::from(u16::from_ne_bytes(short(length))).to_ne_bytes());
    message.extend(NLMSG_DONE.to_ne_bytes());
    message.extend([0; 10]); // flags, sequence and port: the kernel asks for none of them
    message.extend(CN_PROC.to_ne_bytes());
    message.extend(CN_PROC.to_ne_bytes());
    message.extend([0; 4]); // sequence
    message.extend(number.to_ne_bytes());
    message.extend(short(body.len()));
    message.extend([0; 2]); // flags
    message.extend(body);
    message
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
