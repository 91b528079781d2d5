//! Tests on the running kernel: they need root and the host's network namespace.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::*;

/// Every listener receives the events of all tests, and some tests overflow a queue on purpose.
fn alone() -> MutexGuard<'static, ()> {
    static KERNEL: Mutex<()> = Mutex::new(());
    KERNEL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start_program() -> u32 {
    let mut child = Command::new("/bin/true").spawn().unwrap();
    child.wait().unwrap();
    child.id()
}

fn listener_with_queue(bytes: usize) -> Listener {
    let mut listener = Listener { socket: Socket::with_queue(bytes).unwrap(), has_lost: false };
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
    let _alone = alone();
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
    let _alone = alone();
    let listener = listener_with_queue(0);
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

/// Sets the name of the main thread to what it is: an event for each of them.
fn rename_main_thread(times: usize) {
    let name = std::fs::read("/proc/self/comm").unwrap();
    for _ in 0..times {
        std::fs::write("/proc/self/comm", &name).unwrap();
    }
}

/// From the overflow until the queue is empty, the kernel drops every event without another error.
#[test]
fn program_started_after_an_overflow_is_scanned() {
    let _alone = alone();
    let listener = listener_with_queue(64 << 10);
    rename_main_thread(1000);
    let (mut full_scans, mut started, mut later) = (0, None, Vec::new());
    let result = listener.run(|scope| match scope {
        Scope::All => {
            full_scans += 1;
            match full_scans {
                1 => Ok(()),
                2 => {
                    started = Some(start_program());
                    Ok(())
                }
                _ => Err(stop()),
            }
        }
        Scope::Process(pid) if started == Some(pid) => Err(stop()),
        Scope::Process(pid) => {
            assert!(!later.contains(&pid), "the kernel delivers events again, but that of the first program is lost");
            later.extend(started.is_some().then(start_program));
            Ok(())
        }
    });
    assert_stopped(result);
}

/// The scan after an overflow must not wait until the storm ends, and none is the last one before it ends.
#[test]
fn program_started_in_an_endless_storm_is_scanned() {
    let _alone = alone();
    let listener = listener_with_queue(64 << 10);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                rename_main_thread(100);
            }
        });
        let (mut full_scans, mut started) = (0, None);
        let result = listener.run(|scope| match scope {
            Scope::All if started.is_some() => Err(stop()),
            Scope::All => {
                full_scans += 1;
                if full_scans == 5 {
                    started = Some(start_program());
                    is_over.store(true, Ordering::Relaxed);
                }
                Ok(())
            }
            Scope::Process(pid) if started == Some(pid) => Err(stop()),
            // Slower than the storm, so that the queue overflows.
            Scope::Process(_) => {
                std::thread::sleep(Duration::from_millis(1));
                Ok(())
            }
        });
        assert_stopped(result);
    });
}

#[test]
fn quiet_kernel_does_not_prevent_periodic_scans() {
    let _alone = alone();
    let listener = listener_with_queue(64 << 10);
    let mut full_scans = 0;
    let result = listener.run_with(Duration::from_millis(1), |scope| {
        full_scans += usize::from(scope == Scope::All);
        if full_scans == 5 { Err(stop()) } else { Ok(()) }
    });
    assert_stopped(result);
}

#[test]
fn program_started_before_the_first_scan_is_reported() {
    let _alone = alone();
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
