//! Acting as a `ServiceAccount`, as the shipped components do.

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;

use crate::access::Access;
use crate::control_plane::ControlPlane;

/// Longer than any test, and than a sandbox that somebody forgot.
const LIFETIME_SECONDS: i64 = 30 * 24 * 60 * 60;

impl ControlPlane {
    /// The access of a `ServiceAccount`, by a token the API server issues for it (`TokenRequest`).
    pub async fn service_account(&self, namespace: &str, name: &str) -> Result<Access, kube::Error> {
        request(self.admin(), namespace, name, None).await
    }

    /// The same with a token bound to a Node, as the kubelet of that Node mounts it into a pod: the API server then
    /// knows the Node's name (`authentication.kubernetes.io/node-name`).
    pub async fn service_account_on_node(
        &self,
        namespace: &str,
        name: &str,
        node: &str,
    ) -> Result<Access, kube::Error> {
        request(self.admin(), namespace, name, Some(bound_to("Node", node))).await
    }

    /// The same with a token bound to a pod of its namespace, as a kubelet mounts it: it names the pod's Node too, and is
    /// refused once the pod is gone.
    pub async fn service_account_in_pod(&self, namespace: &str, name: &str, pod: &str) -> Result<Access, kube::Error> {
        request(self.admin(), namespace, name, Some(bound_to("Pod", pod))).await
    }
}

fn bound_to(kind: &str, name: &str) -> BoundObjectReference {
    BoundObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some(kind.to_owned()),
        name: Some(name.to_owned()),
        uid: None,
    }
}

/// Asks for a token, as admin.
pub(crate) async fn request(
    admin: &Access,
    namespace: &str,
    name: &str,
    bound_object_ref: Option<BoundObjectReference>,
) -> Result<Access, kube::Error> {
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.client(), namespace);
    let spec = TokenRequestSpec { audiences: None, bound_object_ref, expiration_seconds: Some(LIFETIME_SECONDS) };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let answer = accounts.create_token_request(name, &PostParams::default(), &request).await?;
    let token = answer.status.and_then(|status| status.token).expect("a TokenRequest that was granted has a token");
    Ok(admin.with_token(token))
}
