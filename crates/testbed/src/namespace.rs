//! A namespace for one test.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ObjectMeta, PostParams};
use kube::{Api, Client, Resource};

use crate::access::Access;
use crate::control_plane::ControlPlane;
use crate::diagnostics;

/// Length of the caller's prefix that is used, so that names derived from the namespace stay within 63 characters.
const PREFIX_LENGTH: usize = 30;

/// A namespace and an admin client.
///
/// If the test panics, the objects of the namespace are dumped. The namespace exists until [`TestNamespace::close`] or
/// until the control plane stops.
pub struct TestNamespace {
    pub name: String,
    /// An admin client, bound to the test's runtime.
    pub client: Client,
    pub(crate) access: Access,
    dump_path: std::path::PathBuf,
}

impl ControlPlane {
    /// Creates a namespace with a unique name that starts with `prefix`, in lower case and with dashes between words.
    pub async fn namespace(&self, prefix: &str) -> TestNamespace {
        self.namespace_named(&unique_name(prefix)).await
    }

    /// Creates a namespace with exactly this name.
    pub async fn namespace_named(&self, name: &str) -> TestNamespace {
        let (client, name) = (self.client(), name.to_owned());
        let namespace = Namespace {
            metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
            ..Namespace::default()
        };
        Api::all(client.clone())
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap_or_else(|error| panic!("cannot create namespace {name}: {error}"));
        self.existing_namespace(&name)
    }

    /// A namespace that already exists, such as `default`.
    pub fn existing_namespace(&self, name: &str) -> TestNamespace {
        let dump_path = self.run_dir().path().join(format!("objects-{name}.txt"));
        TestNamespace { name: name.to_owned(), client: self.client(), access: self.admin().clone(), dump_path }
    }
}

impl TestNamespace {
    /// An admin `Api` in this namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// [`Self::api`] for a kind known only at run time.
    pub fn dynamic_api(&self, resource: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.name, resource)
    }

    /// Deletes the namespace without waiting for its objects.
    pub async fn close(self) {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        // A failed cleanup must not fail a test that has passed.
        let _ = namespaces.delete(&self.name, &DeleteParams::background()).await;
    }

    /// Dumps the objects of the namespace, as for a failing test.
    pub fn dump_objects(&self) {
        diagnostics::dump(&self.access, &self.name, &self.dump_path);
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
            self.dump_objects();
        }
    }
}

/// A name that is unique in this process. Tests of different processes never share a control plane.
fn unique_name(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let words: String = prefix
        .chars()
        .map(|character| if character.is_ascii_alphanumeric() { character.to_ascii_lowercase() } else { '-' })
        .take(PREFIX_LENGTH)
        .collect();
    let moment = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() % 100_000);
    format!("{}-{moment}-{}", words.trim_matches('-'), NEXT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentence_becomes_valid_unique_name() {
        let name = unique_name("Grace survives_a restart, and it takes long");
        assert!(name.starts_with("grace-survives-a-restart--and-"), "{name}");
        assert!(name.len() < 50);
        assert_ne!(name, unique_name("Grace survives_a restart, and it takes long"));
    }
}
