//! Tokens of ServiceAccounts.

use k8s_openapi::api::authentication::v1::{
    BoundObjectReference, TokenRequest, TokenRequestSpec, TokenReview, TokenReviewSpec,
};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;

use crate::access::Access;
use crate::control_plane::ControlPlane;

/// Longer than any test, and than a sandbox that is left running.
const LIFETIME_SECONDS: i64 = 30 * 24 * 60 * 60;

impl ControlPlane {
    /// Credentials of a ServiceAccount, by a `TokenRequest`.
    pub async fn service_account(&self, namespace: &str, name: &str) -> Result<Access, kube::Error> {
        request(self.admin(), namespace, name, None).await
    }

    /// Credentials with a token bound to a Node, like the one that a kubelet mounts into a pod: it carries the claim
    /// `authentication.kubernetes.io/node-name`.
    pub async fn service_account_on_node(
        &self,
        namespace: &str,
        name: &str,
        node: &str,
    ) -> Result<Access, kube::Error> {
        request(self.admin(), namespace, name, Some(bound_to("Node", node))).await
    }

    /// Credentials with a token bound to a pod of the namespace: it carries the name of the pod's Node, and is invalid
    /// once the pod is deleted.
    pub async fn service_account_in_pod(&self, namespace: &str, name: &str, pod: &str) -> Result<Access, kube::Error> {
        request(self.admin(), namespace, name, Some(bound_to("Pod", pod))).await
    }
}

impl Access {
    /// What identifies the token in the audit log.
    pub async fn credential(&self, admin: &Access) -> Result<String, kube::Error> {
        let reviews: Api<TokenReview> = Api::all(admin.client());
        let spec = TokenReviewSpec { token: self.token().to_owned(), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviewed = reviews.create(&PostParams::default(), &review).await?;
        let extra = reviewed.status.and_then(|status| status.user).and_then(|user| user.extra).unwrap_or_default();
        let credential = extra.get("authentication.kubernetes.io/credential-id").and_then(|ids| ids.first());
        Ok(credential.cloned().unwrap_or_default())
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

/// Requests a token as admin.
pub(crate) async fn request(
    admin: &Access,
    namespace: &str,
    name: &str,
    bound_object_ref: Option<BoundObjectReference>,
) -> Result<Access, kube::Error> {
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.client(), namespace);
    let spec = TokenRequestSpec { audiences: None, bound_object_ref, expiration_seconds: Some(LIFETIME_SECONDS) };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let response = accounts.create_token_request(name, &PostParams::default(), &request).await?;
    let token = response.status.and_then(|status| status.token).expect("a successful TokenRequest has a token");
    Ok(admin.with_token(token))
}
