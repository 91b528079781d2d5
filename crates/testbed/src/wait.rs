//! Waiting for something to become true, and saying what was seen instead when it does not.

use std::fmt::{Display, Write as _};
use std::time::{Duration, Instant};

use crate::run_dir::live_runs;

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What a look at the world gives: the thing that was waited for, or what was seen instead.
///
/// `bool`, `Option` and `Result` are such answers; an error counts as "not yet".
pub trait Look {
    /// What the wait ends with.
    type Found;
    /// `Err` holds what was seen instead.
    fn settle(self) -> Result<Self::Found, String>;
}

impl Look for bool {
    type Found = ();
    fn settle(self) -> Result<(), String> {
        if self { Ok(()) } else { Err("false".to_owned()) }
    }
}

impl<T> Look for Option<T> {
    type Found = T;
    fn settle(self) -> Result<T, String> {
        self.ok_or_else(|| "nothing".to_owned())
    }
}

impl<T, E: Display> Look for Result<T, E> {
    type Found = T;
    fn settle(self) -> Result<T, String> {
        self.map_err(|seen| format!("{seen:#}"))
    }
}

/// The deadline passed.
#[derive(Debug, thiserror::Error)]
#[error("waited {:.0} s in vain until {what}\nlast seen: {seen}\n{}", waited.as_secs_f64(), where_logs_are())]
pub struct WaitError {
    /// What was awaited.
    pub what: String,
    /// For how long.
    pub waited: Duration,
    /// What the last look saw.
    pub seen: String,
}

/// Looks again and again until `look` finds what is awaited; panics with the evidence at the deadline.
///
/// `what` completes the sentence "waited in vain until …".
pub async fn eventually<L, R>(what: &str, deadline: Duration, look: L) -> R::Found
where
    L: AsyncFnMut() -> R,
    R: Look,
{
    match try_eventually(what, deadline, look).await {
        Ok(found) => found,
        Err(error) => panic!("{error}"),
    }
}

/// The same, with the evidence as an error.
pub async fn try_eventually<L, R>(what: &str, deadline: Duration, mut look: L) -> Result<R::Found, WaitError>
where
    L: AsyncFnMut() -> R,
    R: Look,
{
    let started = Instant::now();
    let mut seen = None;
    loop {
        // A look that hangs must not outlive the deadline either.
        let left = deadline.saturating_sub(started.elapsed()).max(LOOK_EVERY);
        match tokio::time::timeout(left, look()).await.map(Look::settle) {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(instead)) => seen = Some(instead),
            // What an earlier look saw says more than that the last one came too late.
            Err(_) => {}
        }
        if started.elapsed() >= deadline {
            let seen = seen.unwrap_or_else(|| "no answer".to_owned());
            return Err(WaitError { what: what.to_owned(), waited: started.elapsed(), seen });
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn where_logs_are() -> String {
    let mut text = String::new();
    for run in live_runs() {
        writeln!(text, "logs: {}", run.join("logs").display()).expect("writing to a String cannot fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_dir::RunDir;

    #[tokio::test]
    async fn the_deadline_shows_what_was_seen_last_and_where_the_logs_are() {
        let cache = tempfile::tempdir().unwrap();
        let run = RunDir::create(cache.path(), "wait").unwrap();
        let mut looks = 0;
        let error = try_eventually("pigs fly", Duration::from_millis(1), async || {
            looks += 1;
            Err::<(), _>(format!("a pig on the ground, look {looks}"))
        })
        .await
        .unwrap_err();
        let message = error.to_string();
        assert!(message.contains("until pigs fly"), "{message}");
        assert!(message.contains(&format!("a pig on the ground, look {looks}")), "{message}");
        assert!(message.contains(&run.path().join("logs").display().to_string()), "{message}");
    }

    #[tokio::test]
    async fn a_look_that_hangs_does_not_outlive_the_deadline() {
        let hang = try_eventually("an answer comes", Duration::from_millis(1), std::future::pending::<bool>);
        assert_eq!(hang.await.unwrap_err().seen, "no answer");
    }

    #[tokio::test]
    async fn a_last_look_that_hangs_does_not_hide_what_was_seen_before() {
        let mut looks = 0;
        let error = try_eventually("pigs fly", Duration::from_millis(200), async || {
            looks += 1;
            if looks == 1 { Err::<(), _>("a pig on the ground") } else { std::future::pending().await }
        });
        assert_eq!(error.await.unwrap_err().seen, "a pig on the ground");
    }

    #[tokio::test]
    async fn what_was_found_is_given_back() {
        let mut looks = 0;
        let found = eventually("the third look", Duration::from_mins(1), async || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(found.await, 3);
    }
}
