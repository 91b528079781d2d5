//! The flows that are interrupted: what triggers them, and how they end.

use fivespot_api::Phase;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::fixtures::{
    TestMachine, agent_config_name, agent_configs, always, condition, never, request_reclaim, scheduled_machine,
    wait_for, wait_until_request_is_cleared,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// An object is created while its window is open.
    Activation,
    /// The window of an object opens that had a machine before.
    Reopening,
    /// The window of a machine with a pod closes.
    Shutdown,
    /// The kill switch is set.
    KillSwitch,
    /// The object is deleted.
    Deletion,
    /// The owner reclaims the machine.
    Reclaim,
    /// The owner reclaims the machine, and the Node is deleted while no controller runs.
    ReclaimWithoutNode,
}

impl Flow {
    /// Whether it creates a machine.
    pub(crate) fn creates(self) -> bool {
        matches!(self, Flow::Activation | Flow::Reopening)
    }

    fn is_reclaim(self) -> bool {
        matches!(self, Flow::Reclaim | Flow::ReclaimWithoutNode)
    }

    /// Whether the provider keeps the machine until the controller has finished with the Node. Otherwise the Node could be
    /// deleted before the controller has read it.
    fn blocks_removal(self) -> bool {
        self == Flow::KillSwitch || self.is_reclaim()
    }

    /// Creates what exists before the flow starts.
    pub(crate) async fn prepare(self, sm: &TestMachine<'_>) {
        if self == Flow::Activation {
            return;
        }
        if self == Flow::Reopening {
            let sm = scheduled_machine(sm.ns, &sm.name).create_running().await;
            sm.set_schedule(&never()).await;
            sm.wait_for_phase(Phase::Inactive).await;
            return;
        }
        if self.blocks_removal() {
            sm.block_removal().await;
        }
        let builder = scheduled_machine(sm.ns, &sm.name);
        if self.is_reclaim() {
            builder.kill_if_command("java").create_running().await;
            wait_for("the agent is configured", async || {
                agent_configs(&sm.ns.client).get_opt(&agent_config_name(sm)).await.unwrap().is_some()
            })
            .await;
        } else {
            builder.create_running().await;
        }
        sm.create_pod(&pod_name(sm)).await;
    }

    /// Triggers the flow, and returns the uid of the object.
    pub(crate) async fn trigger(self, sm: &TestMachine<'_>) -> String {
        if self == Flow::Activation {
            scheduled_machine(sm.ns, &sm.name).create().await;
        }
        let uid = sm.get().await.uid().unwrap();
        match self {
            Flow::Activation => {}
            Flow::Reopening => sm.set_schedule(&always()).await,
            Flow::Shutdown => sm.set_schedule(&never()).await,
            Flow::KillSwitch => sm.set_kill_switch(true).await,
            Flow::Deletion => sm.delete().await,
            Flow::Reclaim | Flow::ReclaimWithoutNode => request_reclaim(sm).await,
        }
        uid
    }

    /// Lets the provider remove the machine at the right moment, and waits until the object reports the end of the flow.
    pub(crate) async fn wait_until_complete(self, sm: &TestMachine<'_>) {
        if self.blocks_removal() {
            let pods: Api<Pod> = sm.ns.api();
            let pod = pod_name(sm);
            wait_for("the pod is deleted", async || match pods.get_opt(&pod).await {
                Ok(None) => Ok(()),
                Ok(Some(pod)) => Err(json!(pod)),
                Err(error) => Err(json!(error.to_string())),
            })
            .await;
            if self.is_reclaim() {
                wait_until_request_is_cleared(sm).await;
            }
            sm.unblock_removal().await;
        }
        wait_for("the flow completes", async || self.is_complete(sm).await).await;
    }

    async fn is_complete(self, sm: &TestMachine<'_>) -> Result<(), String> {
        let object = sm.api().get_opt(&sm.name).await.map_err(|error| error.to_string())?;
        let status = object.as_ref().and_then(|object| object.status.clone()).unwrap_or_default();
        let complete = match self {
            Flow::Activation | Flow::Reopening => {
                status.phase == Some(Phase::Active) && condition(&status, "Ready").0 == "True"
            }
            Flow::Shutdown => status.phase == Some(Phase::Inactive),
            Flow::KillSwitch => status.phase == Some(Phase::Terminated),
            Flow::Deletion => object.is_none(),
            Flow::Reclaim | Flow::ReclaimWithoutNode => {
                let is_disabled = object.is_some_and(|object| !object.spec.schedule.enabled);
                status.phase == Some(Phase::Disabled) && is_disabled
            }
        };
        if complete { Ok(()) } else { Err(json!(status).to_string()) }
    }

    /// Makes the changes that happen while no controller runs.
    pub(crate) async fn change_while_down(self, sm: &TestMachine<'_>) {
        if self != Flow::ReclaimWithoutNode {
            return;
        }
        // After the last write the Node may have been deleted already.
        match sm.nodes().delete(&sm.node_name(), &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => panic!("{error}"),
        }
        wait_for("the Node is deleted", async || sm.nodes().get_opt(&sm.node_name()).await.unwrap().is_none()).await;
    }
}

/// The name of the pod that runs on the machine.
pub(crate) fn pod_name(sm: &TestMachine<'_>) -> String {
    format!("{}-pod", sm.name)
}
