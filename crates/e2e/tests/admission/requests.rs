//! What is asked of the API server, and all that it answers.

use fivespot_testbed::TestNamespace;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

/// An answer: the object, or why there is none; and what it warns of.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) object: Value,
    pub(crate) refusal: Option<Refusal>,
    /// The rules alone.
    pub(crate) warnings: Vec<String>,
    /// The warnings as they came.
    pub(crate) headers: Vec<String>,
}

/// Why the API server did not do it.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) code: u64,
    pub(crate) message: String,
}

impl Refusal {
    /// The rule that the shipped binding refused it for.
    pub(crate) fn rule(&self) -> Option<&str> {
        let head = "ValidatingAdmissionPolicy 'scheduledmachine-validation' with binding \
                    'scheduledmachine-validation-binding' denied request: ";
        self.message.split_once(head).map(|(_, rule)| rule)
    }
}

impl Answer {
    #[track_caller]
    pub(crate) fn accepted(self, what: &str) -> Value {
        match self.refusal {
            None => self.object,
            Some(refusal) => panic!("{what}: {refusal:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn refused(&self, what: &str) -> &Refusal {
        self.refusal.as_ref().unwrap_or_else(|| panic!("{what} was accepted"))
    }

    /// Asks that it was refused by the policy, for this rule.
    #[track_caller]
    pub(crate) fn refused_for(&self, rule: &str, what: &str) {
        let refusal = self.refused(what);
        assert_eq!((refusal.code, refusal.rule()), (422, Some(rule)), "{what}: {}", refusal.message);
    }
}

fn path(test: &TestNamespace, rest: &str) -> String {
    format!("/apis/5spot.finos.org/v1alpha1/namespaces/{}/scheduledmachines{rest}", test.name)
}

/// Creates it as kubectl does, with unknown fields refused.
pub(crate) async fn create(test: &TestNamespace, manifest: &Value) -> Answer {
    create_as(&test.client, test, manifest).await
}

/// The same as somebody else.
pub(crate) async fn create_as(client: &Client, test: &TestNamespace, manifest: &Value) -> Answer {
    send(client, "POST", &path(test, "?fieldValidation=Strict"), "application/json", manifest).await
}

/// What a creation would be answered.
pub(crate) async fn dry_run(test: &TestNamespace, manifest: &Value) -> Answer {
    let path = path(test, "?fieldValidation=Strict&dryRun=All");
    send(&test.client, "POST", &path, "application/json", manifest).await
}

/// Replaces the spec of a stored object.
pub(crate) async fn replace_spec(test: &TestNamespace, stored: &Value, spec: &Value) -> Answer {
    let mut object = stored.clone();
    object["spec"] = spec.clone();
    replace(test, &object).await
}

/// What replacing the spec would be answered.
pub(crate) async fn dry_run_spec(test: &TestNamespace, stored: &Value, spec: &Value) -> Answer {
    let mut object = stored.clone();
    object["spec"] = spec.clone();
    let path = path(test, &format!("/{}?dryRun=All", name(stored)));
    send(&test.client, "PUT", &path, "application/json", &object).await
}

/// Replaces a stored object.
pub(crate) async fn replace(test: &TestNamespace, object: &Value) -> Answer {
    send(&test.client, "PUT", &path(test, &format!("/{}", name(object))), "application/json", object).await
}

/// Merges this into a stored object; `rest` of the path is a subresource, or how.
pub(crate) async fn merge(test: &TestNamespace, name: &str, rest: &str, patch: &Value) -> Answer {
    let path = path(test, &format!("/{name}{rest}"));
    send(&test.client, "PATCH", &path, "application/merge-patch+json", patch).await
}

pub(crate) async fn delete(test: &TestNamespace, name: &str) -> Answer {
    send(&test.client, "DELETE", &path(test, &format!("/{name}")), "application/json", &json!({})).await
}

pub(crate) async fn get(test: &TestNamespace, name: &str) -> Answer {
    send(&test.client, "GET", &path(test, &format!("/{name}")), "application/json", &json!({})).await
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

async fn send(client: &Client, method: &str, path: &str, content: &str, body: &Value) -> Answer {
    let request = http::Request::builder().method(method).uri(path).header("content-type", content);
    let request = request.body(Body::from(serde_json::to_vec(body).unwrap())).unwrap();
    let response = client.send(request).await.unwrap();
    let headers: Vec<_> =
        response.headers().get_all("warning").iter().map(|it| it.to_str().unwrap().to_owned()).collect();
    let succeeded = response.status().is_success();
    let object: Value = serde_json::from_slice(&response.into_body().collect_bytes().await.unwrap()).unwrap();
    let refusal = (!succeeded).then(|| Refusal {
        code: object["code"].as_u64().unwrap(),
        message: object["message"].as_str().unwrap().to_owned(),
    });
    Answer { object, refusal, warnings: headers.iter().map(|it| warning(it)).collect(), headers }
}

/// What a warning says, without the names of policy and binding.
fn warning(header: &str) -> String {
    let text = header.split_once("with binding").and_then(|(_, rest)| rest.split_once("': "));
    text.map_or(header, |(_, text)| text).trim_end_matches('"').to_owned()
}
