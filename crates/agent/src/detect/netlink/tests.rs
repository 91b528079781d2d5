//! On the kernel that the tests run on: they need root and the host's network namespace.

use std::process::Command;

use super::*;

fn start_something() -> u32 {
    let mut child = Command::new("/bin/true").spawn().unwrap();
    child.wait().unwrap();
    child.id()
}

fn listening(queue: usize) -> Listener {
    let listener = Listener { socket: Socket::with_queue(queue).unwrap() };
    listener.subscribe().unwrap();
    listener
}

#[test]
fn the_filter_lets_starts_and_names_through_and_nothing_else() {
    let listener = Listener::open().unwrap();
    let started: Vec<u32> = (0..5).map(|_| start_something()).collect();
    let (mut seen, mut buffer) = (Vec::new(), socket::buffer());
    while started.iter().any(|it| !seen.contains(it)) {
        match listener.socket.receive(&mut buffer).unwrap() {
            // What the parser does not know, a fork or an exit, would be an event of no kind.
            Received::Events(events) => {
                assert_eq!(events.len(), 1, "a message that should not have been queued");
                seen.extend(events.iter().filter_map(Event::process_of_interest));
            }
            Received::Nothing => {}
            Received::Lost => panic!("five programs are too many"),
        }
    }
}

#[test]
fn a_queue_that_ran_over_has_everything_looked_at() {
    let listener = listening(0);
    listener.socket.wait_at_most(None).unwrap();
    for _ in 0..20 {
        start_something();
    }
    let mut looked = 0;
    let ended = listener.run(|hint| {
        looked += usize::from(hint == Hint::All);
        // The first look is the one at what runs already.
        if looked == 2 { Err("seen") } else { Ok(()) }
    });
    assert!(matches!(ended, Err(Ended::Looking("seen"))));
}

#[test]
fn what_starts_before_the_first_look_is_still_told() {
    let listener = Listener::open().unwrap();
    let started = start_something();
    let ended = listener.run(|hint| if hint == Hint::One(started) { Err("seen") } else { Ok(()) });
    assert!(matches!(ended, Err(Ended::Looking("seen"))));
}
