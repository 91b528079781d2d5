//! The API server's audit log: who asked for what, in which order.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::Value;

use crate::wait::eventually;

/// The audit log of one control plane.
#[derive(Debug, Clone)]
pub struct AuditLog {
    path: PathBuf,
}

/// A place in the log: what was written before it is not read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuditMark(usize);

/// One request, as the API server saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// Who asked: a user name, or `system:serviceaccount:<namespace>:<name>`.
    pub user: String,
    /// get, list, watch, create, update, patch, delete or deletecollection.
    pub verb: String,
    /// The API group, empty for the core group and for requests that name no resource.
    pub group: String,
    /// The plural of the kind, empty for requests that name none.
    pub resource: String,
    /// `status`, `eviction`, `token`…, empty without one.
    pub subresource: String,
    /// The namespace, empty without one.
    pub namespace: String,
    /// The object's name, empty without one. A create has it only if the path or the stored object told it.
    pub name: String,
    /// The HTTP status code, 0 if there was none.
    pub code: u16,
    /// `ResponseStarted` (watches), `ResponseComplete` or `Panic`.
    pub stage: String,
    /// When the API server got the request.
    pub received: Timestamp,
    /// When this stage was reached.
    pub at: Timestamp,
    /// What the client calls itself.
    pub user_agent: String,
    /// The request's path and query.
    pub uri: String,
}

impl AuditEntry {
    /// Whether the request meant to change something.
    pub fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }

    /// Whether it got what it wanted.
    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// `machines` or `machines/status`.
    pub fn target(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }
}

impl AuditLog {
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The present end of the log.
    pub fn mark(&self) -> AuditMark {
        AuditMark(fs::metadata(&self.path).map_or(0, |file| usize::try_from(file.len()).unwrap_or(usize::MAX)))
    }

    /// Every finished request, in the order in which they finished.
    pub fn entries(&self) -> Entries {
        self.since(AuditMark(0))
    }

    /// The requests that finished after `mark`.
    pub fn since(&self, mark: AuditMark) -> Entries {
        let log = fs::read(&self.path).unwrap_or_default();
        let new = log.get(mark.0..).unwrap_or_default();
        Entries(new.split(|byte| *byte == b'\n').filter_map(parse).collect())
    }

    /// Waits until the log has caught up with what was answered before this call.
    ///
    /// An entry is written just after its answer is sent, so a test that reads the log at once may miss the last ones.
    /// This sends a request of its own and waits until that one is in the log.
    pub async fn caught_up(&self, client: &Client) {
        let mark = self.mark();
        let name = format!("audit-mark-{}", mark.0);
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
        let _ = maps.get_opt(&name).await;
        eventually("the audit log catches up", Duration::from_mins(1), async || {
            self.since(mark).0.iter().any(|entry| entry.name == name)
        })
        .await;
    }
}

/// Audit entries, and ways to pick some of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entries(pub Vec<AuditEntry>);

impl Entries {
    /// Those that satisfy a condition.
    #[must_use]
    pub fn filter(self, condition: impl Fn(&AuditEntry) -> bool) -> Self {
        Self(self.0.into_iter().filter(condition).collect())
    }

    /// Those of one user.
    #[must_use]
    pub fn by(self, user: &str) -> Self {
        self.filter(|entry| entry.user == user)
    }

    /// Those in one namespace.
    #[must_use]
    pub fn in_namespace(self, namespace: &str) -> Self {
        self.filter(|entry| entry.namespace == namespace)
    }

    /// Those on a target: `machines` (any subresource too), or `machines/status`.
    #[must_use]
    pub fn on(self, target: &str) -> Self {
        self.filter(|entry| if target.contains('/') { entry.target() == target } else { entry.resource == target })
    }

    /// Those that meant to change something.
    #[must_use]
    pub fn writes(self) -> Self {
        self.filter(AuditEntry::is_write)
    }

    /// Those that got what they wanted.
    #[must_use]
    pub fn succeeded(self) -> Self {
        self.filter(AuditEntry::succeeded)
    }

    /// The users among them, each once, sorted.
    pub fn users(&self) -> Vec<&str> {
        let mut users: Vec<&str> = self.0.iter().map(|entry| entry.user.as_str()).collect();
        users.sort_unstable();
        users.dedup();
        users
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// `None` for a line that the API server is still writing.
fn parse(line: &[u8]) -> Option<AuditEntry> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Times {
        request_received_timestamp: k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime,
        stage_timestamp: k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime,
    }
    let event: Value = serde_json::from_slice(line).ok()?;
    let times = Times::deserialize(&event).ok()?;
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let code = event.pointer("/responseStatus/code").and_then(Value::as_u64);
    Some(AuditEntry {
        user: text("/user/username"),
        verb: text("/verb"),
        group: text("/objectRef/apiGroup"),
        resource: text("/objectRef/resource"),
        subresource: text("/objectRef/subresource"),
        namespace: text("/objectRef/namespace"),
        name: text("/objectRef/name"),
        code: code.and_then(|code| u16::try_from(code).ok()).unwrap_or(0),
        stage: text("/stage"),
        received: times.request_received_timestamp.0,
        at: times.stage_timestamp.0,
        user_agent: text("/userAgent"),
        uri: text("/requestURI"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"kind":"Event","stage":"ResponseComplete","requestURI":"/apis/cluster.x-k8s.io/v1beta2/namespaces/n/machines/m/status","verb":"patch","user":{"username":"cluster-api"},"userAgent":"manager/v1","objectRef":{"resource":"machines","namespace":"n","name":"m","apiGroup":"cluster.x-k8s.io","subresource":"status"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-05T09:00:00.000001Z","stageTimestamp":"2026-01-05T09:00:00.250000Z"}"#;

    fn log_of(text: &str) -> (tempfile::NamedTempFile, AuditLog) {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        let log = AuditLog::at(file.path().to_owned());
        (file, log)
    }

    #[test]
    fn an_entry_tells_who_did_what_to_which_object() {
        let (_file, log) = log_of(LINE);
        let entries = log.entries().by("cluster-api").on("machines/status").in_namespace("n").writes().succeeded();
        assert_eq!(entries.users(), ["cluster-api"]);
        assert_eq!(entries.0[0].target(), "machines/status");
        assert!(entries.0[0].received < entries.0[0].at);
    }

    #[test]
    fn a_line_that_is_still_being_written_is_left_for_later() {
        let (_file, log) = log_of(&format!("{LINE}\n{}", &LINE[..100]));
        assert_eq!(log.entries().len(), 1);
    }

    #[test]
    fn what_was_before_the_mark_is_not_seen() {
        let (file, log) = log_of(&format!("{LINE}\n"));
        let mark = log.mark();
        assert!(log.since(mark).is_empty());
        fs::write(file.path(), format!("{LINE}\n{LINE}\n")).unwrap();
        assert_eq!(log.since(mark).len(), 1);
    }
}
