//! The pauses between attempts to watch: an API server that is away, or says no, is asked ever more seldom, and one that is
//! back is heard of within seconds.

use std::time::Duration;

use kube::runtime::utils::Backoff;
use kube::runtime::watcher::DefaultBackoff;

/// Nobody is blind for longer to what a server tells that is back.
const LONGEST: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(crate) struct Pauses(DefaultBackoff);

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0.next().map(|it| it.min(LONGEST))
    }
}

impl Backoff for Pauses {
    /// A watcher says so at the beginning of each attempt, too. They begin anew when there was no trouble for a while.
    fn reset(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_begins_again_and_again_waits_ever_longer() {
        let mut pauses = Pauses::default();
        let waited: Vec<Duration> = (0..10)
            .map(|_| {
                pauses.reset();
                pauses.next().unwrap()
            })
            .collect();
        assert!(waited[0] < LONGEST && waited[9] == LONGEST, "{waited:?}");
    }
}
