//! A namespace that belongs to one test.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ObjectMeta, PostParams};
use kube::{Api, Client, Resource};

use crate::access::Access;
use crate::control_plane::ControlPlane;
use crate::evidence;

/// Longest prefix taken from the caller, so that names built upon the namespace stay within 63 characters.
const PREFIX: usize = 30;

/// A fresh namespace and an admin client.
///
/// When the test panics, what the namespace holds is written down before the panic goes on. The namespace stays until
/// [`TestNamespace::close`] or the end of the control plane.
pub struct TestNamespace {
    /// The namespace's name.
    pub name: String,
    /// An admin client in the runtime of the test.
    pub client: Client,
    pub(crate) access: Access,
    evidence: std::path::PathBuf,
}

impl ControlPlane {
    /// Makes a namespace whose name starts with `prefix`, made fit for a name: lower case, dashes between words.
    pub async fn namespace(&self, prefix: &str) -> TestNamespace {
        self.namespace_named(&unique_name(prefix)).await
    }

    /// Makes a namespace of exactly this name, where a person or a manifest expects it.
    pub async fn namespace_named(&self, name: &str) -> TestNamespace {
        let (client, name) = (self.client(), name.to_owned());
        let namespace = Namespace {
            metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
            ..Namespace::default()
        };
        Api::all(client.clone())
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap_or_else(|error| panic!("namespace {name} was not made: {error}"));
        self.existing_namespace(&name)
    }

    /// A namespace that is there already, such as `default`.
    pub fn existing_namespace(&self, name: &str) -> TestNamespace {
        let evidence = self.run_dir().path().join(format!("evidence-{name}.txt"));
        TestNamespace { name: name.to_owned(), client: self.client(), access: self.admin().clone(), evidence }
    }
}

impl TestNamespace {
    /// An API of a namespaced kind, in this namespace, as admin.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// The same for a kind known only at run time.
    pub fn dynamic_api(&self, resource: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.name, resource)
    }

    /// Deletes the namespace; the control plane empties it in the background.
    pub async fn close(self) {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        // A test that has passed does not fail because tidying up did.
        let _ = namespaces.delete(&self.name, &DeleteParams::background()).await;
    }

    /// Writes down what the namespace holds now, as a failing test does.
    pub fn dump_evidence(&self) {
        evidence::dump(&self.access, &self.name, &self.evidence);
    }
}

impl std::fmt::Debug for TestNamespace {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TestNamespace").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Drop for TestNamespace {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.dump_evidence();
        }
    }
}

/// Unique among the tests of this process and, with some luck, among processes; only the former share control planes.
fn unique_name(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let words: String = prefix
        .chars()
        .map(|character| if character.is_ascii_alphanumeric() { character.to_ascii_lowercase() } else { '-' })
        .take(PREFIX)
        .collect();
    let moment = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() % 100_000);
    format!("{}-{moment}-{}", words.trim_matches('-'), NEXT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_becomes_a_name() {
        let name = unique_name("Grace survives_a restart, and it takes long");
        assert!(name.starts_with("grace-survives-a-restart--and-"), "{name}");
        assert!(name.len() < 50);
        assert_ne!(name, unique_name("Grace survives_a restart, and it takes long"));
    }
}
