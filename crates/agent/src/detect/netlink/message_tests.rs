use proptest::prelude::*;

use super::*;

/// An event as the kernel lays it out: 76 bytes with both headers.
fn told(number: u32, what: u32, data: &[u32]) -> Vec<u8> {
    let words = [what, 0, 0, 0].into_iter().chain(data.iter().copied());
    let mut body: Vec<u8> = words.flat_map(u32::to_ne_bytes).collect();
    body.resize(40, 0);
    wrap(number, &body)
}

fn renamed(thread: u32, process: u32, name: &[u8]) -> Vec<u8> {
    let mut message = told(0, COMM, &[thread, process]);
    message[DATA_AT + 8..DATA_AT + 8 + name.len()].copy_from_slice(name);
    message
}

#[test]
fn each_kind_of_event_is_read() {
    assert_eq!(told(7, EXEC, &[]).len(), 76);
    assert_eq!(events(&told(8, ACKNOWLEDGED, &[1])), Ok(vec![Event::Acknowledged { number: 8, error: 1 }]));
    assert_eq!(events(&told(0, EXEC, &[41, 42])), Ok(vec![Event::Started { process: 42 }]));
    assert_eq!(
        events(&renamed(43, 42, b"idea")),
        Ok(vec![Event::Renamed { thread: 43, process: 42, name: b"idea".to_vec() }])
    );
    // A name that fills its field to the last byte has no NUL.
    let full = Event::Renamed { thread: 1, process: 1, name: b"0123456789abcdef".to_vec() };
    assert_eq!(events(&renamed(1, 1, b"0123456789abcdef")), Ok(vec![full]));
}

#[test]
fn only_the_first_thread_names_a_process() {
    let of = |thread, process| Event::Renamed { thread, process, name: b"idea".to_vec() }.process_of_interest();
    assert_eq!((of(42, 42), of(43, 42)), (Some(42), None));
    assert_eq!(Event::Started { process: 42 }.process_of_interest(), Some(42));
}

#[test]
fn a_datagram_may_hold_several_and_unknown_ones_are_passed_over() {
    let fork = told(0, 1, &[1, 1, 2, 2]);
    let mut other = told(0, EXEC, &[9, 9]);
    other[16] = 77; // another connector's
    let odd = [&17u32.to_ne_bytes()[..], &[1, 0], &[0; 14]].concat(); // a NOOP of 17 bytes, and three to fill up
    let datagram = [told(0, EXEC, &[1, 1]), fork, other, odd, told(0, EXEC, &[2, 2])].concat();
    assert_eq!(events(&datagram), Ok(vec![Event::Started { process: 1 }, Event::Started { process: 2 }]));
    assert_eq!(events(&[]), Ok(vec![]));
}

#[test]
fn a_length_that_lies_is_a_loss() {
    let whole = told(0, EXEC, &[1, 1]);
    for length in [0u32, 15, 40, 77, u32::MAX] {
        let mut lying = whole.clone();
        lying[..4].copy_from_slice(&length.to_ne_bytes());
        assert_eq!(events(&lying), Err(Broken), "{length}");
    }
    for cut in 1..whole.len() {
        assert_eq!(events(&whole[..cut]), Err(Broken), "{cut}");
    }
    let mut overrun = whole;
    overrun[4] = 4;
    assert_eq!(events(&overrun), Err(Broken));
}

#[test]
fn a_request_is_what_the_kernel_asks_for() {
    let message = listen(0x0102_0304);
    assert_eq!(message.len(), 40);
    assert_eq!(word(&message, 0), Some(40));
    assert_eq!((word(&message, 28), half(&message, 32), word(&message, 36)), (Some(0x0102_0304), Some(4), Some(1)));
    assert_eq!(word(&ignore(), 36), Some(2));
}

proptest! {
    #[test]
    fn any_bytes_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = events(&bytes);
    }

    #[test]
    fn a_flipped_byte_never_panics(
        which in 0usize..152, to in any::<u8>(), cut in 0usize..=152,
    ) {
        let mut datagram = [told(0, EXEC, &[1, 1]), renamed(2, 2, b"idea")].concat();
        datagram[which] = to;
        let _ = events(&datagram[..cut]);
    }

    #[test]
    fn every_message_of_a_datagram_is_read(pids in prop::collection::vec(any::<u32>(), 0..20)) {
        let datagram = pids.iter().flat_map(|it| told(0, EXEC, &[*it, *it])).collect::<Vec<u8>>();
        let read: Vec<u32> = events(&datagram).unwrap().iter().filter_map(Event::process_of_interest).collect();
        prop_assert_eq!(read, pids);
    }
}
