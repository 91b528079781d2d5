//! The agent reports if no admission policy restricts it.

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use serde_json::Value;

use crate::env::{NAMESPACE, NodeEnv, shared};

const SHIPPED: &str = "5spot-reclaim-agent";
const SHIPPED_POLICY: &str = "5spot-reclaim-agent-scope";
/// The shipped policy does not apply to this name.
const RENAMED: &str = "desk-agent";

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
