//! Parses and builds the connector's messages. Pure. The layouts are stable kernel interfaces, in native byte order:
//! `nlmsghdr` (`netlink.h`), then `cn_msg` (`connector.h`), then `proc_event` (`cn_proc.h`).

/// `CN_IDX_PROC`, which is also the multicast group and the value of `CN_VAL_PROC`.
pub(super) const CN_IDX_PROC: u32 = 1;

const NLMSGHDR_SIZE: usize = 16;
const CN_MSG_SIZE: usize = 20;
/// Offset of `proc_event.what` in a message, and for the filter in a datagram.
pub(super) const WHAT_OFFSET: usize = NLMSGHDR_SIZE + CN_MSG_SIZE;
/// Offset of `proc_event.event_data`, after what, cpu and timestamp.
const DATA_OFFSET: usize = WHAT_OFFSET + 16;
const TASK_COMM_LEN: usize = 16;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSG_OVERRUN: u16 = 4;

pub(super) const PROC_EVENT_NONE: u32 = 0;
pub(super) const PROC_EVENT_EXEC: u32 = 2;
pub(super) const PROC_EVENT_COMM: u32 = 0x200;

const PROC_CN_MCAST_LISTEN: u32 = 1;
const PROC_CN_MCAST_IGNORE: u32 = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Reply to a subscription: its sequence number plus one, and 0 or an errno.
    Acknowledged { sequence: u32, error: u32 },
    /// A process executed a program.
    Exec { pid: u32 },
    /// A thread was given a name.
    Renamed { tid: u32, pid: u32, name: Vec<u8> },
}

impl Event {
    /// The process to scan. Only the main thread's name is the name of the process.
    pub(super) fn scan_pid(&self) -> Option<u32> {
        match self {
            Event::Exec { pid } => Some(*pid),
            Event::Renamed { tid, pid, .. } => (tid == pid).then_some(*pid),
            Event::Acknowledged { .. } => None,
        }
    }
}

/// The datagram is inconsistent, so events may be lost.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed proc connector message")]
pub(super) struct Malformed;

/// All events of a datagram. Unknown types are skipped.
pub(super) fn parse(datagram: &[u8]) -> Result<Vec<Event>, Malformed> {
    let mut events = Vec::new();
    let mut rest = datagram;
    while !rest.is_empty() {
        let length = u32_at(rest, 0).and_then(|length| usize::try_from(length).ok()).ok_or(Malformed)?;
        let message = rest.get(..length).filter(|_| length >= NLMSGHDR_SIZE).ok_or(Malformed)?;
        // The connector marks every message as NLMSG_DONE.
        match u16_at(message, 4).ok_or(Malformed)? {
            NLMSG_DONE => events.extend(parse_event(message)?),
            NLMSG_ERROR | NLMSG_OVERRUN => return Err(Malformed),
            _ => {}
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(events)
}

fn parse_event(message: &[u8]) -> Result<Option<Event>, Malformed> {
    let word = |offset| u32_at(message, offset).ok_or(Malformed);
    if (word(NLMSGHDR_SIZE)?, word(NLMSGHDR_SIZE + 4)?) != (CN_IDX_PROC, CN_IDX_PROC) {
        return Ok(None);
    }
    Ok(match word(WHAT_OFFSET)? {
        PROC_EVENT_NONE => Some(Event::Acknowledged { sequence: word(NLMSGHDR_SIZE + 12)?, error: word(DATA_OFFSET)? }),
        PROC_EVENT_EXEC => Some(Event::Exec { pid: word(DATA_OFFSET + 4)? }),
        PROC_EVENT_COMM => {
            let name = message.get(DATA_OFFSET + 8..DATA_OFFSET + 8 + TASK_COMM_LEN).ok_or(Malformed)?;
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
            Some(Event::Renamed { tid: word(DATA_OFFSET)?, pid: word(DATA_OFFSET + 4)?, name })
        }
        _ => None,
    })
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

/// Subscribes to events.
pub(super) fn listen(sequence: u32) -> Vec<u8> {
    connector_message(sequence, &PROC_CN_MCAST_LISTEN.to_ne_bytes())
}

/// Ends the subscription.
pub(super) fn ignore() -> Vec<u8> {
    connector_message(0, &PROC_CN_MCAST_IGNORE.to_ne_bytes())
}

/// `sequence` is `cn_msg.ack`, which the kernel returns incremented.
fn connector_message(sequence: u32, body: &[u8]) -> Vec<u8> {
    let length = NLMSGHDR_SIZE + CN_MSG_SIZE + body.len();
    let u16_bytes = |value: usize| u16::try_from(value).expect("a message is short").to_ne_bytes();
    let mut message = Vec::with_capacity(length);
    message.extend(u32::from(u16::from_ne_bytes(u16_bytes(length))).to_ne_bytes());
    message.extend(NLMSG_DONE.to_ne_bytes());
    message.extend([0; 10]); // flags, sequence and port, which the kernel ignores
    message.extend(CN_IDX_PROC.to_ne_bytes());
    message.extend(CN_IDX_PROC.to_ne_bytes());
    message.extend([0; 4]); // cn_msg.seq
    message.extend(sequence.to_ne_bytes());
    message.extend(u16_bytes(body.len()));
    message.extend([0; 2]); // flags
    message.extend(body);
    message
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
