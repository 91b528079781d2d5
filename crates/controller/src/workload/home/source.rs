//! Where the Nodes of a Cluster are, as the Secret says that Cluster API keeps for it.

use std::sync::atomic::Ordering;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use tokio::time::Instant;

use super::{ClusterKey, FIRST_ANSWER, Shared};
use crate::lock::lock;
use crate::trouble::{is_forbidden, is_not_found, told};

/// Key of the kubeconfig in its Secret.
const SECRET_KEY: &str = "value";

/// Where the Nodes of a Cluster are.
pub(super) enum Source {
    Management,
    Kubeconfig(String),
}

/// Why nobody knows where they are.
pub(super) enum Unknown {
    /// The Secret does not say it.
    Told(String),
    /// The management cluster did not answer, or not to the question: that says nothing of the Secret.
    NotTold(String),
}

impl From<Unknown> for String {
    fn from(unknown: Unknown) -> Self {
        let (Unknown::Told(why) | Unknown::NotTold(why)) = unknown;
        why
    }
}

impl Shared {
    /// Looks where the Nodes are now.
    pub(super) async fn source(&self) -> Result<Source, Unknown> {
        *lock(&self.looked) = Instant::now();
        let ClusterKey { namespace, name } = &self.cluster;
        let secret = format!("{name}-kubeconfig");
        let secrets: Api<Secret> = Api::namespaced(self.means.management.clone(), namespace);
        let found = tokio::time::timeout(FIRST_ANSWER, secrets.get(&secret))
            .await
            .map_err(|_| Unknown::NotTold(format!("cannot read Secret {namespace}/{secret}: no answer")))?;
        let told_why = |why: String| Err(Unknown::Told(why));
        match found {
            Ok(found) => {
                let Some(value) = found.data.unwrap_or_default().remove(SECRET_KEY) else {
                    return told_why(format!("Secret {namespace}/{secret} has no key {SECRET_KEY:?}"));
                };
                self.had_kubeconfig.store(true, Ordering::Release);
                match String::from_utf8(value.0) {
                    Ok(text) => Ok(Source::Kubeconfig(text)),
                    Err(_) => told_why(format!("Secret {namespace}/{secret} is not text")),
                }
            }
            Err(error) if is_not_found(&error) && self.means.require_kubeconfig => {
                told_why(format!("there is no Secret {namespace}/{secret}, and --require-kubeconfig is set"))
            }
            // One that was there a moment ago is being replaced: its Nodes are not to be looked for elsewhere.
            Err(error) if is_not_found(&error) && self.had_kubeconfig.load(Ordering::Acquire) => {
                told_why(format!("Secret {namespace}/{secret} is gone"))
            }
            Err(error) if is_not_found(&error) => Ok(Source::Management),
            Err(error) if is_forbidden(&error) => told_why(format!(
                "may not read Secret {namespace}/{secret}: bind ClusterRole 5spot-workload-access to the controller's \
                 ServiceAccount, in namespace {namespace} or in all"
            )),
            Err(error) => Err(Unknown::NotTold(format!("cannot read Secret {namespace}/{secret}: {}", told(&error)))),
        }
    }
}
