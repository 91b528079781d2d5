//! ServiceAccounts for tests, with exactly the permissions that the test grants.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use kube::Api;
use kube::api::{ObjectMeta, PostParams};

use crate::access::Access;
use crate::namespace::TestNamespace;
use crate::token;

impl TestNamespace {
    /// Creates a ServiceAccount and grants it these rules in the test's namespace.
    pub async fn account(&self, name: &str, rules: Vec<PolicyRule>) -> Result<Access, kube::Error> {
        let (create, metadata) = (PostParams::default(), named(name));
        let role = Role { metadata: metadata.clone(), rules: Some(rules) };
        let role_ref = role_ref("Role", name);
        let binding = RoleBinding { metadata, role_ref, subjects: Some(vec![self.subject(name)]) };
        self.create_account(name).await?;
        self.api().create(&create, &role).await?;
        self.api().create(&create, &binding).await?;
        token::request(&self.access, &self.name, name, None).await
    }

    /// Creates a ServiceAccount and grants it these rules in all namespaces, by the ClusterRole
    /// `<namespace>-<name>`. [`Self::close`] does not delete that role.
    pub async fn cluster_wide_account(&self, name: &str, rules: Vec<PolicyRule>) -> Result<Access, kube::Error> {
        let (create, role_name) = (PostParams::default(), format!("{}-{name}", self.name));
        let metadata = named(&role_name);
        let role = ClusterRole { metadata: metadata.clone(), rules: Some(rules), aggregation_rule: None };
        let role_ref = role_ref("ClusterRole", &role_name);
        let binding = ClusterRoleBinding { metadata, role_ref, subjects: Some(vec![self.subject(name)]) };
        self.create_account(name).await?;
        Api::all(self.client.clone()).create(&create, &role).await?;
        Api::all(self.client.clone()).create(&create, &binding).await?;
        token::request(&self.access, &self.name, name, None).await
    }

    async fn create_account(&self, name: &str) -> Result<(), kube::Error> {
        let account = ServiceAccount { metadata: named(name), ..ServiceAccount::default() };
        self.api().create(&PostParams::default(), &account).await.map(drop)
    }

    fn subject(&self, name: &str) -> Subject {
        Subject {
            kind: "ServiceAccount".to_owned(),
            name: name.to_owned(),
            namespace: Some(self.name.clone()),
            api_group: None,
        }
    }
}

/// A rule that allows verbs on resources of one API group; `""` is the core group.
pub fn allow(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let owned = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

fn role_ref(kind: &str, name: &str) -> RoleRef {
    RoleRef { api_group: Some("rbac.authorization.k8s.io".to_owned()), kind: kind.to_owned(), name: name.to_owned() }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}
