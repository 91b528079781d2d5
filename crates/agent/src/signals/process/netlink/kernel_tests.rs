//! Tests on the running kernel: they need root and the host's network namespace.

use std::process::Command;

use super::*;

fn start_program() -> u32 {
    let mut child = Command::new("/bin/true").spawn().unwrap();
    child.wait().unwrap();
    child.id()
}

fn listener_with_queue(bytes: usize) -> Listener {
    let listener = Listener { socket: Socket::with_queue(bytes).unwrap() };
    listener.subscribe().unwrap();
    listener
}

/// Ends [`Listener::run`].
fn stop() -> SignalError {
    SignalError::Output(io::Error::other("stopped by the test"))
}

#[track_caller]
fn assert_stopped(result: Result<Infallible, SignalError>) {
    let Err(error) = result;
    assert!(matches!(error, SignalError::Output(_)), "{error}");
}

#[test]
fn filter_passes_exec_and_comm_events_only() {
    let listener = Listener::open().unwrap();
    let started: Vec<u32> = (0..5).map(|_| start_program()).collect();
    let (mut received, mut buffer) = (Vec::new(), socket::buffer());
    while started.iter().any(|pid| !received.contains(pid)) {
        match listener.socket.receive(&mut buffer).unwrap() {
            // A fork or exit would be a datagram without any event that the parser knows.
            Received::Events(events) => {
                assert_eq!(events.len(), 1, "the filter passed a message that it should drop");
                received.extend(events.iter().filter_map(Event::scan_pid));
            }
            Received::Nothing => {}
            Received::Lost => panic!("five programs overflowed the queue"),
        }
    }
}

#[test]
fn queue_overflow_triggers_a_full_scan() {
    let listener = listener_with_queue(0);
    listener.socket.set_receive_timeout(None).unwrap();
    for _ in 0..20 {
        start_program();
    }
    let mut full_scans = 0;
    let result = listener.run(|scope| {
        full_scans += usize::from(scope == Scope::All);
        // The first full scan is the initial one.
        if full_scans == 2 { Err(stop()) } else { Ok(()) }
    });
    assert_stopped(result);
}

#[test]
fn program_started_before_the_first_scan_is_reported() {
    let listener = Listener::open().unwrap();
    let started = start_program();
    assert_stopped(listener.run(|scope| if scope == Scope::Process(started) { Err(stop()) } else { Ok(()) }));
}

#[test]
fn lost_events_are_logged_once_per_interval() {
    let (mut last_logged, start) = (None, Instant::now());
    let after = [Duration::ZERO, Duration::from_secs(1), LOG_INTERVAL, LOG_INTERVAL + Duration::from_secs(1)];
    assert_eq!(after.map(|delay| log_lost(&mut last_logged, start + delay)), [true, false, true, false]);
}
