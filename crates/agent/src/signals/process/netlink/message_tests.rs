use proptest::prelude::*;

use super::*;

/// An event as the kernel lays it out: 76 bytes with both headers.
fn message(sequence: u32, what: u32, data: &[u32]) -> Vec<u8> {
    let words = [what, 0, 0, 0].into_iter().chain(data.iter().copied());
    let mut body: Vec<u8> = words.flat_map(u32::to_ne_bytes).collect();
    body.resize(40, 0);
    connector_message(sequence, &body)
}

fn exec(pid: u32) -> Vec<u8> {
    message(0, PROC_EVENT_EXEC, &[pid, pid])
}

fn renamed(tid: u32, pid: u32, name: &[u8]) -> Vec<u8> {
    let mut message = message(0, PROC_EVENT_COMM, &[tid, pid]);
    message[DATA_OFFSET + 8..DATA_OFFSET + 8 + name.len()].copy_from_slice(name);
    message
}

#[test]
fn every_event_type_is_parsed() {
    assert_eq!(message(7, PROC_EVENT_EXEC, &[]).len(), 76);
    assert_eq!(parse(&message(8, PROC_EVENT_NONE, &[1])), Ok(vec![Event::Acknowledged { sequence: 8, error: 1 }]));
    assert_eq!(parse(&message(0, PROC_EVENT_EXEC, &[41, 42])), Ok(vec![Event::Exec { pid: 42 }]));
    assert_eq!(parse(&renamed(43, 42, b"idea")), Ok(vec![Event::Renamed { tid: 43, pid: 42, name: b"idea".to_vec() }]));
    // A name that fills the field has no NUL.
    let full = Event::Renamed { tid: 1, pid: 1, name: b"0123456789abcdef".to_vec() };
    assert_eq!(parse(&renamed(1, 1, b"0123456789abcdef")), Ok(vec![full]));
}

#[test]
fn only_main_thread_rename_triggers_a_scan() {
    let scan_pid = |tid, pid| Event::Renamed { tid, pid, name: b"idea".to_vec() }.scan_pid();
    assert_eq!((scan_pid(42, 42), scan_pid(43, 42)), (Some(42), None));
    assert_eq!(Event::Exec { pid: 42 }.scan_pid(), Some(42));
}

#[test]
fn unknown_messages_in_a_datagram_are_skipped() {
    let fork = message(0, 1, &[1, 1, 2, 2]);
    let mut other_connector = exec(9);
    other_connector[16] = 77;
    let noop = [&17u32.to_ne_bytes()[..], &[1, 0], &[0; 14]].concat(); // 17 bytes, padded to 20
    let datagram = [exec(1), fork, other_connector, noop, exec(2)].concat();
    assert_eq!(parse(&datagram), Ok(vec![Event::Exec { pid: 1 }, Event::Exec { pid: 2 }]));
    assert_eq!(parse(&[]), Ok(vec![]));
}

#[test]
fn wrong_length_is_malformed() {
    let valid = exec(1);
    for length in [0u32, 15, 40, 77, u32::MAX] {
        let mut invalid = valid.clone();
        invalid[..4].copy_from_slice(&length.to_ne_bytes());
        assert_eq!(parse(&invalid), Err(Malformed), "{length}");
    }
    for cut in 1..valid.len() {
        assert_eq!(parse(&valid[..cut]), Err(Malformed), "{cut}");
    }
    let mut overrun = valid;
    overrun[4] = 4;
    assert_eq!(parse(&overrun), Err(Malformed));
}

#[test]
fn subscription_has_the_kernel_layout() {
    let message = listen(0x0102_0304);
    assert_eq!(message.len(), 40);
    assert_eq!(u32_at(&message, 0), Some(40));
    assert_eq!(
        (u32_at(&message, 28), u16_at(&message, 32), u32_at(&message, 36)),
        (Some(0x0102_0304), Some(4), Some(1))
    );
    assert_eq!(u32_at(&ignore(), 36), Some(2));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn flipped_byte_never_panics(
        which in 0usize..152, to in any::<u8>(), cut in 0usize..=152,
    ) {
        let mut datagram = [exec(1), renamed(2, 2, b"idea")].concat();
        datagram[which] = to;
        let _ = parse(&datagram[..cut]);
    }

    #[test]
    fn every_message_of_a_datagram_is_parsed(pids in prop::collection::vec(any::<u32>(), 0..20)) {
        let datagram = pids.iter().flat_map(|pid| exec(*pid)).collect::<Vec<u8>>();
        let parsed: Vec<u32> = parse(&datagram).unwrap().iter().filter_map(Event::scan_pid).collect();
        prop_assert_eq!(parsed, pids);
    }
}
