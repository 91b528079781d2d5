//! What a person does, what others do meanwhile, and how it ends.

use crate::fixtures::{Desk, SOON, always, condition, never};
use fivespot_api::Phase;
use fivespot_testbed::provider::{Behaviour, Provider, Removal};
use fivespot_testbed::wait::eventually;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _};
use serde_json::json;

/// What a person does, and what is to come of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// An object is created whose window is open.
    Activation,
    /// The window of a machine that runs a pod closes.
    Shutdown,
    /// Its kill switch is set.
    Kill,
    /// It is deleted.
    Deletion,
}

impl Flow {
    /// What there is before.
    pub(crate) async fn prepare(self, desk: &Desk<'_>, provider: &Provider) {
        match self {
            Flow::Activation => {}
            Flow::Shutdown | Flow::Kill | Flow::Deletion => {
                if self == Flow::Kill {
                    // Nothing waits for the pods, and here a machine could be gone before anybody has looked for them.
                    let stays = Behaviour { removal: Removal::Never, ..Behaviour::default() };
                    provider.behave_for(&desk.test.name, &format!("{}-infra", desk.name), stays);
                }
                desk.create(&always(), &json!({})).await;
                desk.runs().await;
                desk.pod(&pod_of(desk), &json!({})).await;
            }
        }
    }

    /// What others do meanwhile, up to the end that the object tells of.
    pub(crate) async fn run_its_course(self, desk: &Desk<'_>, provider: &Provider) {
        if self == Flow::Kill {
            let pods: Api<Pod> = desk.test.api();
            let pod = pod_of(desk);
            eventually("the pod has been ended", SOON, async || match pods.get_opt(&pod).await {
                Ok(None) => Ok(()),
                Ok(Some(pod)) => Err(json!(pod)),
                Err(error) => Err(json!(error.to_string())),
            })
            .await;
            provider.behave_for(&desk.test.name, &format!("{}-infra", desk.name), Behaviour::default());
        }
        eventually("the flow ends", SOON, async || self.has_ended(desk).await).await;
    }

    /// What a person does. The answer is the uid of the object.
    pub(crate) async fn begin(self, desk: &Desk<'_>) -> String {
        if self == Flow::Activation {
            desk.create(&always(), &json!({})).await;
        }
        let uid = desk.get().await.uid().unwrap();
        match self {
            Flow::Activation => {}
            Flow::Shutdown => desk.reschedule(&never()).await,
            Flow::Kill => desk.edit(&json!({ "spec": { "killSwitch": true } })).await,
            Flow::Deletion => desk.delete().await,
        }
        uid
    }

    /// Whether it has come to its end, as the object says.
    pub(crate) async fn has_ended(self, desk: &Desk<'_>) -> Result<(), String> {
        let object = desk.api().get_opt(desk.name).await.map_err(|error| error.to_string())?;
        let status = object.as_ref().and_then(|it| it.status.clone()).unwrap_or_default();
        let ended = match self {
            Flow::Activation => status.phase == Some(Phase::Active) && condition(&status, "Ready").0 == "True",
            Flow::Shutdown => status.phase == Some(Phase::Inactive),
            Flow::Kill => status.phase == Some(Phase::Terminated),
            Flow::Deletion => object.is_none(),
        };
        if ended { Ok(()) } else { Err(json!(status).to_string()) }
    }
}

/// Name of the pod that runs on its machine.
pub(crate) fn pod_of(desk: &Desk<'_>) -> String {
    format!("{}-pod", desk.name)
}
