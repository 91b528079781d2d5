//! The reclaim request: three annotations on the Node, in one patch.
//!
//! The patch itself tests the Node's machine ID, so the API server rejects it for the wrong Node. No read is needed first,
//! and nothing can change between a check and the write.

use fivespot_api::keys;
use http::Request;
use http::header::{ACCEPT, CONTENT_TYPE};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::signals::OwnerMatch;

const FIELD_MANAGER: &str = "5spot-reclaim-agent";
/// Not one of the three that the admission policy allows. It is never stored.
const SCOPE_CHECK_ANNOTATION: &str = "5spot.finos.org/agent-scope-check";
/// Never stored.
const TRIAL_REASON: &str = "process-match: dry run";
/// Keeps the response short: the Node itself is not needed.
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// The Node of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeIdentity {
    pub(crate) name: String,
    /// `None` trusts the name.
    pub(crate) machine_id: Option<String>,
}

/// Does not change when it is sent again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReclaimRequest {
    reason: String,
    requested_at: String,
}

impl ReclaimRequest {
    pub(crate) fn new(found: &OwnerMatch, now: Timestamp) -> Self {
        ReclaimRequest::with_reason(found.reason(), now)
    }

    /// Sent as a dry run, to learn whether the API server would accept a request.
    pub(super) fn trial(now: Timestamp) -> Self {
        ReclaimRequest::with_reason(TRIAL_REASON.to_owned(), now)
    }

    fn with_reason(reason: String, now: Timestamp) -> Self {
        // Whole seconds, as in Kubernetes timestamps.
        let requested_at = Timestamp::from_second(now.as_second()).unwrap_or(now);
        ReclaimRequest { reason, requested_at: requested_at.to_string() }
    }

    pub(crate) fn reason(&self) -> &str {
        &self.reason
    }

    fn annotations(&self) -> [(&'static str, &str); 3] {
        [
            (keys::RECLAIM_REQUESTED_ANNOTATION, keys::RECLAIM_REQUESTED),
            (keys::RECLAIM_REASON_ANNOTATION, &self.reason),
            (keys::RECLAIM_REQUESTED_AT_ANNOTATION, &self.requested_at),
        ]
    }
}

/// How the patch adds the annotations. A JSON patch cannot add a member to a map that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PatchForm {
    AddToAnnotations,
    /// For a Node without annotations, guarded by its version so that no annotation is overwritten.
    CreateAnnotations {
        resource_version: String,
    },
}

/// Whether the API server stores the patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteMode {
    Store,
    /// The API server checks permissions, admission policies and the patch itself, and stores nothing.
    DryRun,
}

impl WriteMode {
    fn query(self) -> &'static str {
        match self {
            WriteMode::Store => "",
            WriteMode::DryRun => "dryRun=All&",
        }
    }
}

impl NodeIdentity {
    pub(super) fn patch(
        &self,
        request: &ReclaimRequest,
        form: &PatchForm,
        mode: WriteMode,
    ) -> Result<Request<Vec<u8>>, http::Error> {
        let (content_type, body) = match &self.machine_id {
            Some(machine_id) => ("application/json-patch+json", json_patch(machine_id, request, form)),
            None => ("application/merge-patch+json", merge_patch(request)),
        };
        self.patch_request(content_type, &body, mode)
    }

    /// A dry run of a change that the admission policy has to reject.
    pub(super) fn scope_check(&self) -> Result<Request<Vec<u8>>, http::Error> {
        let body = json!({ "metadata": { "annotations": { SCOPE_CHECK_ANNOTATION: "rejected" } } });
        self.patch_request("application/merge-patch+json", &body, WriteMode::DryRun)
    }

    fn patch_request(
        &self,
        content_type: &str,
        body: &Value,
        mode: WriteMode,
    ) -> Result<Request<Vec<u8>>, http::Error> {
        Request::patch(format!("/api/v1/nodes/{}?{}fieldManager={FIELD_MANAGER}", self.name, mode.query()))
            .header(CONTENT_TYPE, content_type)
            .header(ACCEPT, METADATA_ONLY)
            .body(body.to_string().into_bytes())
    }

    pub(super) fn get(&self) -> Result<Request<Vec<u8>>, http::Error> {
        Request::get(format!("/api/v1/nodes/{}", self.name)).body(Vec::new())
    }
}

fn json_patch(machine_id: &str, request: &ReclaimRequest, form: &PatchForm) -> Value {
    let mut operations = vec![json!({ "op": "test", "path": "/status/nodeInfo/machineID", "value": machine_id })];
    match form {
        PatchForm::AddToAnnotations => operations.extend(request.annotations().map(|(key, value)| {
            let key = key.replace('~', "~0").replace('/', "~1");
            json!({ "op": "add", "path": format!("/metadata/annotations/{key}"), "value": value })
        })),
        PatchForm::CreateAnnotations { resource_version } => operations.extend([
            json!({ "op": "test", "path": "/metadata/resourceVersion", "value": resource_version }),
            json!({ "op": "add", "path": "/metadata/annotations", "value": annotation_map(request) }),
        ]),
    }
    Value::Array(operations)
}

fn merge_patch(request: &ReclaimRequest) -> Value {
    json!({ "metadata": { "annotations": annotation_map(request) } })
}

fn annotation_map(request: &ReclaimRequest) -> Value {
    request.annotations().into_iter().map(|(key, value)| (key.to_owned(), Value::from(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signals::process::{MatchSource, ProcessMatch};

    fn request() -> ReclaimRequest {
        let found = ProcessMatch { pid: 7, comm: "java".into(), matched: "idea".into(), source: MatchSource::Cmdline };
        ReclaimRequest::new(&found.into(), "2026-04-20T21:45:00.9Z".parse().unwrap())
    }

    fn node(machine_id: Option<&str>) -> NodeIdentity {
        NodeIdentity { name: "n1".into(), machine_id: machine_id.map(str::to_owned) }
    }

    fn body(machine_id: Option<&str>, form: &PatchForm) -> Value {
        let patch = node(machine_id).patch(&request(), form, WriteMode::Store).unwrap();
        serde_json::from_slice(patch.body()).unwrap()
    }

    #[test]
    fn patch_tests_the_machine_id_first() {
        assert_eq!(
            body(Some("cafe"), &PatchForm::AddToAnnotations),
            json!([
                { "op": "test", "path": "/status/nodeInfo/machineID", "value": "cafe" },
                { "op": "add", "path": "/metadata/annotations/5spot.finos.org~1reclaim-requested", "value": "true" },
                { "op": "add", "path": "/metadata/annotations/5spot.finos.org~1reclaim-reason",
                  "value": "process-match: idea" },
                { "op": "add", "path": "/metadata/annotations/5spot.finos.org~1reclaim-requested-at",
                  "value": "2026-04-20T21:45:00Z" },
            ])
        );
    }

    #[test]
    fn scope_check_is_a_dry_run() {
        let check = node(Some("cafe")).scope_check().unwrap();
        assert_eq!(check.uri().query(), Some("dryRun=All&fieldManager=5spot-reclaim-agent"));
        let body: Value = serde_json::from_slice(check.body()).unwrap();
        assert!(
            request().annotations().iter().all(|(key, _)| body["metadata"]["annotations"][key].is_null()),
            "{body}"
        );
    }

    #[test]
    fn dry_run_is_the_same_patch() {
        let patch = |mode| node(Some("cafe")).patch(&request(), &PatchForm::AddToAnnotations, mode).unwrap();
        let (stored, dry_run) = (patch(WriteMode::Store), patch(WriteMode::DryRun));
        assert_eq!(dry_run.uri().query(), Some("dryRun=All&fieldManager=5spot-reclaim-agent"));
        assert_eq!((dry_run.body(), dry_run.headers()), (stored.body(), stored.headers()));
    }

    #[test]
    fn first_annotations_are_guarded_by_resource_version() {
        let body = body(Some("cafe"), &PatchForm::CreateAnnotations { resource_version: "12".into() });
        assert_eq!(body[0]["op"], "test");
        assert_eq!(body[1], json!({ "op": "test", "path": "/metadata/resourceVersion", "value": "12" }));
        assert_eq!(body[2]["path"], "/metadata/annotations");
        assert_eq!(body[2]["value"]["5spot.finos.org/reclaim-requested"], "true");
    }

    #[test]
    fn without_machine_id_it_is_a_merge_patch() {
        let body = body(None, &PatchForm::AddToAnnotations);
        assert_eq!(body["metadata"]["annotations"]["5spot.finos.org/reclaim-reason"], "process-match: idea");
        let patch = node(None).patch(&request(), &PatchForm::AddToAnnotations, WriteMode::Store).unwrap();
        assert_eq!(patch.headers()[CONTENT_TYPE], "application/merge-patch+json");
        assert_eq!(patch.uri(), "/api/v1/nodes/n1?fieldManager=5spot-reclaim-agent");
    }
}
