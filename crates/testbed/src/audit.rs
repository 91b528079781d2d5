//! The API server's audit log: which user sent which request, in which order.

use std::fs;
use std::io::{self, Read as _, Seek as _, SeekFrom};
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

/// A position in the log, for [`AuditLog::since`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuditMark(u64);

/// One stage of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// The user name, for a ServiceAccount `system:serviceaccount:<namespace>:<name>`.
    pub user: String,
    /// get, list, watch, create, update, patch, delete or deletecollection.
    pub verb: String,
    /// The API group, empty for the core group and for non-resource requests.
    pub group: String,
    /// The plural of the kind, empty for non-resource requests.
    pub resource: String,
    /// `status`, `eviction`, `token`…, or empty.
    pub subresource: String,
    /// Empty for cluster-scoped resources.
    pub namespace: String,
    /// May be empty, also for a create: then neither the path nor the stored object has it.
    pub name: String,
    /// The HTTP status code, 0 without a response.
    pub code: u16,
    /// `ResponseStarted` (watches), `ResponseComplete` or `Panic`.
    pub stage: String,
    /// When the API server received the request.
    pub received: Timestamp,
    /// When this stage was reached.
    pub at: Timestamp,
    pub user_agent: String,
    /// Identifies the token that was used; empty for other credentials.
    pub credential: String,
    /// Path and query.
    pub uri: String,
}

impl AuditEntry {
    /// Whether the request is to change something; a dry run is not.
    pub fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
            && !self.is_dry_run()
    }

    pub fn is_dry_run(&self) -> bool {
        self.uri.contains("dryRun=All")
    }

    /// Whether the status code is 2xx.
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

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The current end of the log.
    pub fn mark(&self) -> AuditMark {
        AuditMark(fs::metadata(&self.path).map_or(0, |file| file.len()))
    }

    /// Every request, in the order in which they finished.
    pub fn entries(&self) -> Entries {
        self.since(AuditMark(0))
    }

    /// The requests that finished after `mark`.
    pub fn since(&self, mark: AuditMark) -> Entries {
        let new = self.read_from(mark).unwrap_or_default();
        Entries(new.split(|byte| *byte == b'\n').filter_map(parse).collect())
    }

    fn read_from(&self, mark: AuditMark) -> io::Result<Vec<u8>> {
        let mut log = fs::File::open(&self.path)?;
        log.seek(SeekFrom::Start(mark.0))?;
        let mut new = Vec::new();
        log.read_to_end(&mut new)?;
        Ok(new)
    }

    /// Waits until the log contains every request that was answered before this call.
    ///
    /// The API server writes an entry shortly after it sends the response, so a test that reads the log immediately may
    /// miss the last entries. This method sends a request and waits until the log contains it.
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

/// A list of audit entries with filters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entries(pub Vec<AuditEntry>);

impl Entries {
    #[must_use]
    pub fn filter(self, condition: impl Fn(&AuditEntry) -> bool) -> Self {
        Self(self.0.into_iter().filter(condition).collect())
    }

    #[must_use]
    pub fn by(self, user: &str) -> Self {
        self.filter(|entry| entry.user == user)
    }

    #[must_use]
    pub fn in_namespace(self, namespace: &str) -> Self {
        self.filter(|entry| entry.namespace == namespace)
    }

    /// Requests on `machines` (including subresources) or on `machines/status`.
    #[must_use]
    pub fn on(self, target: &str) -> Self {
        self.filter(|entry| if target.contains('/') { entry.target() == target } else { entry.resource == target })
    }

    #[must_use]
    pub fn writes(self) -> Self {
        self.filter(AuditEntry::is_write)
    }

    #[must_use]
    pub fn succeeded(self) -> Self {
        self.filter(AuditEntry::succeeded)
    }

    /// The distinct users, sorted.
    pub fn users(&self) -> Vec<&str> {
        let mut users: Vec<&str> = self.0.iter().map(|entry| entry.user.as_str()).collect();
        users.sort_unstable();
        users.dedup();
        users
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// Returns `None` for a line that the API server is still writing.
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
        credential: text("/user/extra/authentication.kubernetes.io~1credential-id/0"),
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
    fn entry_has_user_verb_and_object() {
        let (_file, log) = log_of(LINE);
        let entries = log.entries().by("cluster-api").on("machines/status").in_namespace("n").writes().succeeded();
        assert_eq!(entries.users(), ["cluster-api"]);
        assert_eq!(entries.0[0].target(), "machines/status");
        assert!(entries.0[0].received < entries.0[0].at);
    }

    #[test]
    fn incomplete_line_is_ignored() {
        let (_file, log) = log_of(&format!("{LINE}\n{}", &LINE[..100]));
        assert_eq!(log.entries().len(), 1);
    }

    #[test]
    fn since_skips_entries_before_the_mark() {
        let (file, log) = log_of(&format!("{LINE}\n"));
        let mark = log.mark();
        assert!(log.since(mark).is_empty());
        fs::write(file.path(), format!("{LINE}\n{LINE}\n")).unwrap();
        assert_eq!(log.since(mark).len(), 1);
    }
}
