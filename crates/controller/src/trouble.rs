//! What can go wrong with a request, by what it means for the pass.

use std::time::Duration;

use fivespot_api::conditions::ReferencesValid;
use fivespot_cli_support::chain;
use kube::core::Status;

/// How long the management cluster may take to answer.
pub(crate) const MANAGEMENT: Duration = Duration::from_secs(30);
/// How long a workload cluster may take to answer.
pub(crate) const WORKLOAD: Duration = Duration::from_secs(10);

/// Why a pass does not go on.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// What was decided from is not what is there any more: look again.
    #[error("{0}")]
    Stale(String),
    /// The API server could not be asked, or asked to be left alone for a while.
    #[error("{0}")]
    Hiccup(String),
    /// It answered, and will answer the same until something changes.
    #[error("{why}")]
    Refused {
        /// Why.
        why: String,
        /// What that means for the condition `ReferencesValid`, if it is about a reference.
        references: Option<ReferencesValid>,
    },
    /// The process is to end.
    #[error("the controller is stopping")]
    Stopping,
}

impl Trouble {
    /// What a failed request means. `what` says what was tried, such as "cannot delete Machine a".
    pub(crate) fn of(what: &str, error: &kube::Error) -> Self {
        let Some(status) = api_status(error) else { return Trouble::Hiccup(format!("{what}: {}", told(error))) };
        let why = format!("{what}: {}", gist(&status.message));
        match status.code {
            404 | 409 => Trouble::Stale(why),
            408 | 429 | 500..=599 => Trouble::Hiccup(why),
            _ => Trouble::Refused { why, references: None },
        }
    }

    /// The words for the metric.
    pub(crate) const KINDS: [&'static str; 5] = ["stale", "unavailable", "reference", "refused", "stopping"];

    /// The word for the metric.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Trouble::Stale(_) => "stale",
            Trouble::Hiccup(_) => "unavailable",
            Trouble::Refused { references: Some(_), .. } => "reference",
            Trouble::Refused { references: None, .. } => "refused",
            Trouble::Stopping => "stopping",
        }
    }
}

/// What the API server answered, if it did.
pub(crate) fn api_status(error: &kube::Error) -> Option<&Status> {
    match error {
        kube::Error::Api(status) => Some(status),
        _ => None,
    }
}

/// Whether the API server says that there is no such thing.
pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    api_status(error).is_some_and(|it| it.code == 404)
}

/// Whether the API server says that we may not.
pub(crate) fn is_forbidden(error: &kube::Error) -> bool {
    api_status(error).is_some_and(|it| it.code == 403)
}

/// An error in one line, without the names of Rust types.
pub(crate) fn told(error: &kube::Error) -> String {
    match api_status(error) {
        Some(status) => gist(&status.message),
        None => gist(&chain(error).replace("ServiceError: ", "").replace("HyperError: ", "")),
    }
}

/// How much of what a server says is passed on.
const AT_MOST: usize = 400;

/// The beginning of what a server says. Whatever stands behind a kubeconfig can say as much as it likes, and all of it would
/// be in a status and in the log.
pub(crate) fn gist(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let end = (0..=AT_MOST.min(line.len())).rev().find(|at| line.is_char_boundary(*at)).unwrap_or_default();
    if end < line.len() { format!("{}…", &line[..end]) } else { line.to_owned() }
}

/// Waits for a request, but not for ever.
pub(crate) async fn within<T>(
    limit: Duration,
    what: &str,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<Result<T, kube::Error>, Trouble> {
    tokio::time::timeout(limit, request)
        .await
        .map_err(|_| Trouble::Hiccup(format!("{what}: no answer within {} s", limit.as_secs())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_is_passed_on_in_short() {
        assert_eq!(gist(" nodes is forbidden\n<html>"), "nodes is forbidden");
        assert_eq!(gist(""), "");
        let long = "é".repeat(AT_MOST);
        let short = gist(&long);
        assert!(short.len() <= AT_MOST + '…'.len_utf8() && short.ends_with("é…"), "{short}");
        assert_eq!(gist(&"a".repeat(AT_MOST)).len(), AT_MOST);
    }
}
