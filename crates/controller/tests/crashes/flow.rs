//! What a person does, what others do meanwhile, and how it ends.

use crate::fixtures::{Desk, SOON, always, condition, never};
use fivespot_api::{Phase, keys};
use fivespot_testbed::provider::{Behaviour, Provider, Removal};
use fivespot_testbed::wait::eventually;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
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
    /// Its owner wants it back.
    Reclaim,
    /// Its owner wants it back, and its Node is gone when a controller that was killed is started again.
    ReclaimWithoutNode,
}

impl Flow {
    /// Whether the owner wants the machine back.
    pub(crate) fn is_reclaim(self) -> bool {
        matches!(self, Flow::Reclaim | Flow::ReclaimWithoutNode)
    }

    /// Whether the machine stays until all has been done about its Node: here it could be gone before anybody has looked.
    fn is_held(self) -> bool {
        self == Flow::Kill || self.is_reclaim()
    }

    /// What there is before.
    pub(crate) async fn prepare(self, desk: &Desk<'_>, provider: &Provider) {
        match self {
            Flow::Activation => {}
            Flow::Shutdown | Flow::Kill | Flow::Deletion | Flow::Reclaim | Flow::ReclaimWithoutNode => {
                if self.is_held() {
                    let stays = Behaviour { removal: Removal::Never, ..Behaviour::default() };
                    provider.behave_for(&desk.test.name, &format!("{}-infra", desk.name), stays);
                }
                let more = if self.is_reclaim() { json!({ "killIfCommands": ["java"] }) } else { json!({}) };
                desk.create(&always(), &more).await;
                desk.runs().await;
                if self.is_reclaim() {
                    agent_is_there(desk).await;
                }
                desk.pod(&pod_of(desk), &json!({})).await;
            }
        }
    }

    /// What others do meanwhile, up to the end that the object tells of.
    pub(crate) async fn run_its_course(self, desk: &Desk<'_>, provider: &Provider) {
        if self.is_held() {
            let pods: Api<Pod> = desk.test.api();
            let pod = pod_of(desk);
            eventually("the pod has been ended", SOON, async || match pods.get_opt(&pod).await {
                Ok(None) => Ok(()),
                Ok(Some(pod)) => Err(json!(pod)),
                Err(error) => Err(json!(error.to_string())),
            })
            .await;
            if self.is_reclaim() {
                eventually("the request is cleared", SOON, async || !is_asked(desk).await).await;
            }
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
            Flow::Reclaim | Flow::ReclaimWithoutNode => ask(desk).await,
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
            Flow::Reclaim | Flow::ReclaimWithoutNode => {
                let stays_away = object.is_some_and(|it| !it.spec.schedule.enabled);
                status.phase == Some(Phase::Disabled) && stays_away
            }
        };
        if ended { Ok(()) } else { Err(json!(status).to_string()) }
    }
}

/// Name of the pod that runs on its machine.
pub(crate) fn pod_of(desk: &Desk<'_>) -> String {
    format!("{}-pod", desk.name)
}

/// What others do while no controller runs.
pub(crate) async fn meanwhile(flow: Flow, desk: &Desk<'_>) {
    if flow == Flow::ReclaimWithoutNode {
        // With the last write it may have gone by itself.
        match desk.nodes().delete(&desk.node_name(), &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => panic!("{error}"),
        }
        let gone = async || desk.nodes().get_opt(&desk.node_name()).await.unwrap().is_none();
        eventually("the Node is gone", SOON, gone).await;
    }
}

/// Name of what the agent on its Node is told.
pub(crate) fn orders_of(desk: &Desk<'_>) -> String {
    keys::reclaim_config_map(&desk.node_name())
}

async fn agent_is_there(desk: &Desk<'_>) {
    let orders: Api<ConfigMap> = Api::namespaced(desk.test.client.clone(), "5spot-system");
    let there = async || orders.get_opt(&orders_of(desk)).await.unwrap().is_some();
    eventually("the agent is told what to look for", SOON, there).await;
}

/// What the agent writes when it has found a program.
async fn ask(desk: &Desk<'_>) {
    let annotations = json!({
        keys::RECLAIM_REQUESTED_ANNOTATION: "true",
        keys::RECLAIM_REASON_ANNOTATION: "process-match: java",
        keys::RECLAIM_REQUESTED_AT_ANNOTATION: jiff::Timestamp::now().to_string(),
    });
    let patch = json!({ "metadata": { "annotations": annotations } });
    desk.nodes().patch(&desk.node_name(), &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

async fn is_asked(desk: &Desk<'_>) -> bool {
    let node = desk.nodes().get_opt(&desk.node_name()).await.unwrap();
    node.is_some_and(|it| it.annotations().contains_key(keys::RECLAIM_REQUESTED_ANNOTATION))
}
