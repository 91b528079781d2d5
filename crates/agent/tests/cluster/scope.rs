//! The agent reports if no admission policy restricts it, and if it may not write its request.

use fivespot_testbed::wait::eventually;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use serde_json::Value;

use crate::env::{NAMESPACE, NodeEnv, shared};
use crate::fixtures::TIMEOUT;

const SHIPPED: &str = "5spot-reclaim-agent";
const SHIPPED_POLICY: &str = "5spot-reclaim-agent-scope";
/// The shipped policy does not apply to this name.
const RENAMED: &str = "desk-agent";

/// With a name of its own, to which the shipped policy applies.
const REVOKED: &str = "5spot-reclaim-agent-revoked";

/// A copy of a shipped object under another name, with `edit` applied.
async fn copy<K>(api: Api<K>, from: &str, to: &str, edit: impl Fn(&mut Value))
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let mut object = serde_json::to_value(api.get(from).await.unwrap()).unwrap();
    edit(&mut object);
    let mut object: K = serde_json::from_value(object).unwrap();
    *object.meta_mut() = ObjectMeta { name: Some(to.to_owned()), ..ObjectMeta::default() };
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// The owner gets the machine back nevertheless: a policy that is missing does not protect the Node from this agent.
#[tokio::test]
async fn agent_is_not_ready_until_a_policy_restricts_it() {
    let env = NodeEnv::new(shared().await, "unrestricted").await;
    let client = env.plane.client();
    let subject = |object: &mut Value| object["subjects"][0]["name"] = RENAMED.into();
    copy::<ServiceAccount>(Api::namespaced(client.clone(), NAMESPACE), SHIPPED, RENAMED, |_| ()).await;
    copy::<ClusterRoleBinding>(Api::all(client.clone()), SHIPPED, RENAMED, subject).await;
    copy::<RoleBinding>(Api::namespaced(client.clone(), NAMESPACE), SHIPPED, RENAMED, subject).await;
    env.use_access(&env.plane.service_account_on_node(NAMESPACE, RENAMED, &env.node).await.unwrap());

    env.apply_config("match_commands = ['unrestricted-idea']\n").await;
    let _agent = env.start_agent(&[]);
    env.wait_until_not_ready("ValidatingAdmissionPolicy 5spot-reclaim-agent-scope does not exist or does not apply")
        .await;
    let idea = env.start_program("unrestricted-idea");
    env.wait_for_request().await;
    drop(idea);

    let rename = |policy: &mut Value| {
        let expression = &mut policy["spec"]["matchConditions"][0]["expression"];
        *expression = expression.as_str().unwrap().replace(SHIPPED, RENAMED).into();
    };
    copy::<ValidatingAdmissionPolicy>(Api::all(client.clone()), SHIPPED_POLICY, RENAMED, rename).await;
    let bind = |binding: &mut Value| binding["spec"]["policyName"] = RENAMED.into();
    copy::<ValidatingAdmissionPolicyBinding>(Api::all(client), SHIPPED_POLICY, RENAMED, bind).await;
    env.wait_until_ready().await;
}

/// RBAC rejects what the policy has to reject as well, so that alone does not show that the agent is restricted.
#[tokio::test]
async fn agent_is_ready_only_while_it_may_write_its_request() {
    let env = NodeEnv::new(shared().await, "revoked").await;
    let client = env.plane.client();
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let subject = |object: &mut Value| object["subjects"][0]["name"] = REVOKED.into();
    copy::<ServiceAccount>(Api::namespaced(client.clone(), NAMESPACE), SHIPPED, REVOKED, |_| ()).await;
    copy::<RoleBinding>(Api::namespaced(client.clone(), NAMESPACE), SHIPPED, REVOKED, subject).await;
    let access = env.plane.service_account_on_node(NAMESPACE, REVOKED, &env.node).await.unwrap();
    env.use_access(&access);

    env.apply_config("match_commands = ['revoked-idea']\n").await;
    let agent = env.start_agent(&[]);
    env.wait_until_not_ready("the API server would reject a reclaim request for Node revoked: ").await;
    let logged = agent.wait_for_log("API server would reject a reclaim request", |_| true).await;
    let error = logged["error"].as_str().unwrap();
    assert!(error.contains("403 Forbidden") && error.contains("required permissions: deploy/node-agent"), "{error}");
    copy::<ClusterRoleBinding>(bindings.clone(), SHIPPED, REVOKED, subject).await;
    env.wait_until_ready().await;
    assert!(env.has_no_request().await, "the check is a dry run");

    bindings.delete(REVOKED, &DeleteParams::default()).await.unwrap();
    let nodes: Api<Node> = Api::all(access.client());
    eventually("the permissions are revoked", TIMEOUT, async || nodes.get(&env.node).await.is_err()).await;
    let _idea = env.start_program("revoked-idea");
    env.wait_until_not_ready("the reclaim request for Node revoked cannot be stored: ").await;
    copy::<ClusterRoleBinding>(bindings, SHIPPED, REVOKED, subject).await;
    env.wait_for_request().await;
    env.wait_until_ready().await;
}
