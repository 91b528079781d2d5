//! Polls until a condition holds, and reports the last observation if it never does.

use std::fmt::{self, Display};
use std::time::{Duration, Instant};

use crate::run_dir::live_runs;

const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// What a probe returns: `bool`, `Option` or `Result`. `false`, `None` and `Err` mean "not yet".
pub trait ProbeResult {
    type Value;
    fn into_result(self) -> Result<Self::Value, NotYet>;
}

/// Describes what a probe observed while the condition did not hold.
#[derive(Debug)]
pub struct NotYet(String);

impl ProbeResult for bool {
    type Value = ();
    fn into_result(self) -> Result<(), NotYet> {
        if self { Ok(()) } else { Err(NotYet("false".to_owned())) }
    }
}

impl<T> ProbeResult for Option<T> {
    type Value = T;
    fn into_result(self) -> Result<T, NotYet> {
        self.ok_or_else(|| NotYet("nothing".to_owned()))
    }
}

impl<T, E: Display> ProbeResult for Result<T, E> {
    type Value = T;
    fn into_result(self) -> Result<T, NotYet> {
        self.map_err(|observed| NotYet(format!("{observed:#}")))
    }
}

/// The timeout expired before the condition held.
#[derive(Debug, thiserror::Error)]
#[error("timed out after {:.0} s waiting until {what}\nlast observed: {observed}\n{}", waited.as_secs_f64(), LogPaths)]
pub struct WaitError {
    /// The condition, as in "waiting until …".
    pub what: String,
    pub waited: Duration,
    /// What the last probe that returned observed.
    pub observed: String,
}

/// Calls `probe` until it succeeds and returns its value. Panics with the last observation when the timeout expires.
///
/// `what` completes the sentence "timed out waiting until …".
pub async fn eventually<P, R>(what: &str, timeout: Duration, probe: P) -> R::Value
where
    P: AsyncFnMut() -> R,
    R: ProbeResult,
{
    match try_eventually(what, timeout, probe).await {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}

/// [`eventually`] with an error instead of a panic.
pub async fn try_eventually<P, R>(what: &str, timeout: Duration, mut probe: P) -> Result<R::Value, WaitError>
where
    P: AsyncFnMut() -> R,
    R: ProbeResult,
{
    let started = Instant::now();
    let mut observed = None;
    loop {
        // A probe that hangs must not outlive the timeout.
        let remaining = timeout.saturating_sub(started.elapsed()).max(POLL_INTERVAL);
        match tokio::time::timeout(remaining, probe()).await.map(ProbeResult::into_result) {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(NotYet(description))) => observed = Some(description),
            // Keep the observation of an earlier probe: it says more than "timed out".
            Err(_) => {}
        }
        if started.elapsed() >= timeout {
            let observed = observed.unwrap_or_else(|| "no response".to_owned());
            return Err(WaitError { what: what.to_owned(), waited: started.elapsed(), observed });
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The log directories of the active runs, one per line.
struct LogPaths;

impl Display for LogPaths {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        live_runs().iter().try_for_each(|run| writeln!(formatter, "logs: {}", run.join("logs").display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_dir::RunDir;

    #[tokio::test]
    async fn error_has_last_observation_and_log_path() {
        let cache = tempfile::tempdir().unwrap();
        let run = RunDir::create(cache.path(), "wait").unwrap();
        let mut probes = 0;
        let error = try_eventually("the pod runs", Duration::from_millis(1), async || {
            probes += 1;
            Err::<(), _>(format!("Pending, probe {probes}"))
        })
        .await
        .unwrap_err();
        let message = error.to_string();
        assert!(message.contains("until the pod runs"), "{message}");
        assert!(message.contains(&format!("Pending, probe {probes}")), "{message}");
        assert!(message.contains(&run.path().join("logs").display().to_string()), "{message}");
    }

    #[tokio::test]
    async fn hanging_probe_does_not_outlive_the_timeout() {
        let hang = try_eventually("it responds", Duration::from_millis(1), std::future::pending::<bool>);
        assert_eq!(hang.await.unwrap_err().observed, "no response");
    }

    #[tokio::test]
    async fn hanging_last_probe_keeps_earlier_observation() {
        let mut probes = 0;
        let error = try_eventually("the pod runs", Duration::from_millis(200), async || {
            probes += 1;
            if probes == 1 { Err::<(), _>("Pending") } else { std::future::pending().await }
        });
        assert_eq!(error.await.unwrap_err().observed, "Pending");
    }

    #[tokio::test]
    async fn returns_the_value_of_the_probe() {
        let mut probes = 0;
        let value = eventually("the third probe", Duration::from_mins(1), async || {
            probes += 1;
            (probes == 3).then_some(probes)
        });
        assert_eq!(value.await, 3);
    }
}
