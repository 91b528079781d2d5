//! The request that the machine's owner makes without knowing it: three annotations on its Node, in one patch.
//!
//! The patch itself says whose machine it is for: the API server compares the machine-id before it writes. So there is
//! nothing to read first, and nothing can change between a look and the write.

use fivespot_api::keys;
use http::Request;
use http::header::{ACCEPT, CONTENT_TYPE};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::lookout::Found;

/// Who writes it, as the API server notes it down.
const FIELD_MANAGER: &str = "5spot-reclaim-agent";
/// A Node is long; of the answer only the beginning matters.
const SHORT_ANSWER: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// Which Node, and what it takes to be it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) node: String,
    /// `None` trusts the Node's name.
    pub(crate) machine_id: Option<String>,
}

/// What is asked for, why and since when. However often it is sent, it says the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    reason: String,
    at: String,
}

impl Wanted {
    pub(crate) fn because_of(found: &Found, at: Timestamp) -> Self {
        // Whole seconds, as Kubernetes writes its times.
        let at = Timestamp::from_second(at.as_second()).unwrap_or(at);
        Wanted { reason: format!("process-match: {}", found.what.matched), at: at.to_string() }
    }

    pub(crate) fn reason(&self) -> &str {
        &self.reason
    }

    fn annotations(&self) -> [(&'static str, &str); 3] {
        [
            (keys::RECLAIM_REQUESTED_ANNOTATION, keys::RECLAIM_REQUESTED),
            (keys::RECLAIM_REASON_ANNOTATION, &self.reason),
            (keys::RECLAIM_REQUESTED_AT_ANNOTATION, &self.at),
        ]
    }
}

/// Which patch it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Each annotation by itself, where there are others.
    Add,
    /// The first annotations of a Node, in this version of it.
    Begin { resource_version: String },
}

impl Target {
    /// The patch as it is sent.
    pub(crate) fn patch(&self, wanted: &Wanted, form: &Form) -> Result<Request<Vec<u8>>, http::Error> {
        let (kind, body) = match &self.machine_id {
            Some(machine_id) => ("application/json-patch+json", json_patch(machine_id, wanted, form)),
            None => ("application/merge-patch+json", merge_patch(wanted)),
        };
        let path = format!("/api/v1/nodes/{}?fieldManager={FIELD_MANAGER}", self.node);
        Request::patch(path).header(CONTENT_TYPE, kind).header(ACCEPT, SHORT_ANSWER).body(body.to_string().into_bytes())
    }

    /// A look at the Node.
    pub(crate) fn get(&self) -> Result<Request<Vec<u8>>, http::Error> {
        Request::get(format!("/api/v1/nodes/{}", self.node)).body(Vec::new())
    }
}

fn json_patch(machine_id: &str, wanted: &Wanted, form: &Form) -> Value {
    let mut operations = vec![json!({ "op": "test", "path": "/status/nodeInfo/machineID", "value": machine_id })];
    match form {
        Form::Add => operations.extend(wanted.annotations().map(|(key, value)| {
            let key = key.replace('~', "~0").replace('/', "~1");
            json!({ "op": "add", "path": format!("/metadata/annotations/{key}"), "value": value })
        })),
        Form::Begin { resource_version } => operations.extend([
            json!({ "op": "test", "path": "/metadata/resourceVersion", "value": resource_version }),
            json!({ "op": "add", "path": "/metadata/annotations", "value": map(wanted) }),
        ]),
    }
    Value::Array(operations)
}

fn merge_patch(wanted: &Wanted) -> Value {
    json!({ "metadata": { "annotations": map(wanted) } })
}

fn map(wanted: &Wanted) -> Value {
    wanted.annotations().into_iter().map(|(key, value)| (key.to_owned(), Value::from(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matcher::{Match, Source};

    fn wanted() -> Wanted {
        let what = Match { comm: "java".into(), matched: "idea".into(), source: Source::Cmdline };
        Wanted::because_of(&Found { pid: 7, what }, "2026-04-20T21:45:00.9Z".parse().unwrap())
    }

    fn target(machine_id: Option<&str>) -> Target {
        Target { node: "n1".into(), machine_id: machine_id.map(str::to_owned) }
    }

    fn body(machine_id: Option<&str>, form: &Form) -> Value {
        let patch = target(machine_id).patch(&wanted(), form).unwrap();
        serde_json::from_slice(patch.body()).unwrap()
    }

    #[test]
    fn the_first_thing_that_it_says_is_whose_machine_it_is_for() {
        assert_eq!(
            body(Some("cafe"), &Form::Add),
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
    fn the_first_annotations_of_a_node_never_replace_others() {
        let body = body(Some("cafe"), &Form::Begin { resource_version: "12".into() });
        assert_eq!(body[0]["op"], "test");
        assert_eq!(body[1], json!({ "op": "test", "path": "/metadata/resourceVersion", "value": "12" }));
        assert_eq!(body[2]["path"], "/metadata/annotations");
        assert_eq!(body[2]["value"]["5spot.finos.org/reclaim-requested"], "true");
    }

    #[test]
    fn without_an_identity_it_is_a_plain_merge() {
        let body = body(None, &Form::Add);
        assert_eq!(body["metadata"]["annotations"]["5spot.finos.org/reclaim-reason"], "process-match: idea");
        let patch = target(None).patch(&wanted(), &Form::Add).unwrap();
        assert_eq!(patch.headers()[CONTENT_TYPE], "application/merge-patch+json");
        assert_eq!(patch.uri(), "/api/v1/nodes/n1?fieldManager=5spot-reclaim-agent");
    }
}
