//! Requests to the API server, and responses with their warnings.

use fivespot_testbed::TestNamespace;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) object: Value,
    pub(crate) rejection: Option<Rejection>,
    /// The violated rules, without the names of policy and binding.
    pub(crate) warnings: Vec<String>,
    /// The unmodified `Warning` headers.
    pub(crate) headers: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Rejection {
    pub(crate) code: u64,
    pub(crate) message: String,
}

impl Rejection {
    /// The rule for which the shipped binding denied the request.
    pub(crate) fn rule(&self) -> Option<&str> {
        let head = "ValidatingAdmissionPolicy 'scheduledmachine-validation' with binding \
                    'scheduledmachine-validation-binding' denied request: ";
        self.message.split_once(head).map(|(_, rule)| rule)
    }
}

impl Response {
    #[track_caller]
    pub(crate) fn accepted(self, what: &str) -> Value {
        match self.rejection {
            None => self.object,
            Some(rejection) => panic!("{what}: {rejection:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn rejected(&self, what: &str) -> &Rejection {
        self.rejection.as_ref().unwrap_or_else(|| panic!("{what} was accepted"))
    }

    /// Asserts that the policy denied the request for this rule.
    #[track_caller]
    pub(crate) fn rejected_for(&self, rule: &str, what: &str) {
        let rejection = self.rejected(what);
        assert_eq!((rejection.code, rejection.rule()), (422, Some(rule)), "{what}: {}", rejection.message);
    }
}

fn path(test: &TestNamespace, rest: &str) -> String {
    format!("/apis/5spot.finos.org/v1alpha1/namespaces/{}/scheduledmachines{rest}", test.name)
}

/// Creates an object with strict field validation, as kubectl does.
pub(crate) async fn create(test: &TestNamespace, manifest: &Value) -> Response {
    create_as(&test.client, test, manifest).await
}

/// [`create`] as another user.
pub(crate) async fn create_as(client: &Client, test: &TestNamespace, manifest: &Value) -> Response {
    send(client, "POST", &path(test, "?fieldValidation=Strict"), "application/json", manifest).await
}

/// A dry-run create.
pub(crate) async fn dry_run(test: &TestNamespace, manifest: &Value) -> Response {
    let path = path(test, "?fieldValidation=Strict&dryRun=All");
    send(&test.client, "POST", &path, "application/json", manifest).await
}

/// Replaces the spec of a stored object.
pub(crate) async fn replace_spec(test: &TestNamespace, stored: &Value, spec: &Value) -> Response {
    let mut object = stored.clone();
    object["spec"] = spec.clone();
    replace(test, &object).await
}

/// A dry-run replacement of the spec.
pub(crate) async fn dry_run_spec(test: &TestNamespace, stored: &Value, spec: &Value) -> Response {
    let mut object = stored.clone();
    object["spec"] = spec.clone();
    let path = path(test, &format!("/{}?dryRun=All", name(stored)));
    send(&test.client, "PUT", &path, "application/json", &object).await
}

pub(crate) async fn replace(test: &TestNamespace, object: &Value) -> Response {
    send(&test.client, "PUT", &path(test, &format!("/{}", name(object))), "application/json", object).await
}

/// Sends a merge patch; `rest` of the path is a subresource or a query.
pub(crate) async fn merge(test: &TestNamespace, name: &str, rest: &str, patch: &Value) -> Response {
    let path = path(test, &format!("/{name}{rest}"));
    send(&test.client, "PATCH", &path, "application/merge-patch+json", patch).await
}

pub(crate) async fn delete(test: &TestNamespace, name: &str) -> Response {
    send(&test.client, "DELETE", &path(test, &format!("/{name}")), "application/json", &json!({})).await
}

pub(crate) async fn get(test: &TestNamespace, name: &str) -> Response {
    send(&test.client, "GET", &path(test, &format!("/{name}")), "application/json", &json!({})).await
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

async fn send(client: &Client, method: &str, path: &str, content: &str, body: &Value) -> Response {
    let request = http::Request::builder().method(method).uri(path).header("content-type", content);
    let request = request.body(Body::from(serde_json::to_vec(body).unwrap())).unwrap();
    let response = client.send(request).await.unwrap();
    let headers: Vec<_> =
        response.headers().get_all("warning").iter().map(|it| it.to_str().unwrap().to_owned()).collect();
    let succeeded = response.status().is_success();
    let object: Value = serde_json::from_slice(&response.into_body().collect_bytes().await.unwrap()).unwrap();
    let rejection = (!succeeded).then(|| Rejection {
        code: object["code"].as_u64().unwrap(),
        message: object["message"].as_str().unwrap().to_owned(),
    });
    Response { object, rejection, warnings: headers.iter().map(|it| warning(it)).collect(), headers }
}

/// The text of a warning without the names of policy and binding.
fn warning(header: &str) -> String {
    let text = header.split_once("with binding").and_then(|(_, rest)| rest.split_once("': "));
    text.map_or(header, |(_, text)| text).trim_end_matches('"').to_owned()
}
