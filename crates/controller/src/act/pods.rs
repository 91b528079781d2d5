//! Asking pods to leave, or ending them.

use fivespot_planner::drain;
use fivespot_planner::plan::PodKey;
use fivespot_planner::status::Blocked;
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, EvictParams};
use kube::core::Status;
use kube::{Api, ResourceExt as _};

use super::Pass;
use super::children::only;
use crate::observe::pods_of;
use crate::trouble::{Trouble, api_status, is_not_found};
use crate::workload::Reach;

/// How many pods of a Node are asked at once.
const AT_ONCE: usize = 16;
/// What the API server gives as the cause where a budget says no.
const BUDGET: &str = "DisruptionBudget";

/// What came of asking a pod to leave.
enum Asked {
    Leaves,
    Gone,
    Blocked(Blocked),
}

impl Pass<'_> {
    /// Asks pods to leave, with regard to their budgets. A budget that says no is not a failure: it is told, and asked
    /// again.
    pub(super) async fn evict(&mut self, pods: &[PodKey]) -> Result<(), Trouble> {
        let Some((reach, _)) = self.reach()? else { return Ok(()) };
        let asked: Vec<Result<Asked, Trouble>> = {
            let (this, reach) = (&*self, &reach);
            let asking: Vec<_> = pods.iter().map(|pod| this.evict_pod(reach, pod).boxed()).collect();
            futures::stream::iter(asking).buffer_unordered(AT_ONCE).collect().await
        };
        let mut trouble = None;
        for asked in asked {
            let result = match asked {
                Ok(Asked::Leaves) => "evicted",
                Ok(Asked::Gone) => "gone",
                Ok(Asked::Blocked(blocked)) => {
                    self.done.blocked.push(blocked);
                    "blocked"
                }
                Err(error) => {
                    trouble = Some(error);
                    "failed"
                }
            };
            self.context.metrics.evicted(result);
        }
        trouble.map_or(Ok(()), Err)
    }

    async fn evict_pod(&self, reach: &Reach, pod: &PodKey) -> Result<Asked, Trouble> {
        let what = format!("cannot evict pod {}/{}", pod.namespace, pod.name);
        let api: Api<Pod> = Api::namespaced(reach.client(), &pod.namespace);
        let params = EvictParams { delete_options: Some(only(&pod.uid)), ..EvictParams::default() };
        match self.ask(reach, &what, api.evict(&pod.name, &params)).await? {
            Ok(_) => Ok(Asked::Leaves),
            Err(error) => match api_status(&error) {
                // Gone, or another that took its name.
                Some(status) if status.code == 404 || status.code == 409 => Ok(Asked::Gone),
                Some(status) if is_blocked(status) => {
                    Ok(Asked::Blocked(Blocked { namespace: pod.namespace.clone(), budget: budget(status) }))
                }
                Some(_) | None => Err(Trouble::of(&what, &error)),
            },
        }
    }

    /// Ends pods at once, with regard to nothing.
    pub(super) async fn end_pods(&self, pods: &[PodKey]) -> Result<(), Trouble> {
        let Some((reach, _)) = self.reach()? else { return Ok(()) };
        let ending: Vec<_> = pods.iter().map(|pod| self.end_pod(&reach, pod).boxed()).collect();
        let ended: Vec<_> = futures::stream::iter(ending).buffer_unordered(AT_ONCE).collect().await;
        ended.into_iter().collect()
    }

    /// Finds the pods of the Node, and ends them at once.
    pub(super) async fn end_all_pods(&self) -> Result<(), Trouble> {
        let Some((reach, node)) = self.reach()? else { return Ok(()) };
        let pods = pods_of(&reach, &node.name).await?;
        let keys: Vec<PodKey> = pods
            .iter()
            .filter(|pod| drain::is_ejected(pod))
            .map(|pod| PodKey {
                namespace: pod.namespace().unwrap_or_default(),
                name: pod.name_any(),
                uid: pod.uid().unwrap_or_default(),
            })
            .collect();
        self.end_pods(&keys).await
    }

    async fn end_pod(&self, reach: &Reach, pod: &PodKey) -> Result<(), Trouble> {
        let what = format!("cannot end pod {}/{}", pod.namespace, pod.name);
        let api: Api<Pod> = Api::namespaced(reach.client(), &pod.namespace);
        let params = DeleteParams { grace_period_seconds: Some(0), ..only(&pod.uid) };
        match self.ask(reach, &what, api.delete(&pod.name, &params)).await? {
            Ok(_) => Ok(()),
            Err(error) if is_not_found(&error) || api_status(&error).is_some_and(|it| it.code == 409) => Ok(()),
            Err(error) => Err(Trouble::of(&what, &error)),
        }
    }
}

/// Whether a budget says no. Two budgets over one pod are a 500, since the API server does not know which to ask.
fn is_blocked(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|it| &it.causes);
    let by_budget = causes.into_iter().any(|it| it.reason == BUDGET);
    (status.code == 429 && by_budget) || (status.code == 500 && status.message.contains("PodDisruptionBudget"))
}

/// The name of the budget, from the sentence in which the API server gives it.
fn budget(status: &Status) -> Option<String> {
    let causes = status.details.iter().flat_map(|it| &it.causes);
    let sentence = causes.into_iter().find(|it| it.reason == BUDGET).map(|it| it.message.as_str())?;
    let rest = sentence.strip_prefix("The disruption budget ")?;
    rest.split_whitespace().next().map(str::to_owned)
}
