//! The machine that is in at once, and the work that runs on it.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use fivespot_testbed::run_dir::RunDir;
use jiff::{SignedDuration, Timestamp};

use super::CLUSTER;

/// Its name.
pub(super) const OPEN_NOW: &str = "desk";
/// How long it stays, and how long it is away before it comes back: long enough to look around, short enough to be seen.
pub(super) const STAYS: SignedDuration = SignedDuration::from_mins(10);
pub(super) const IS_AWAY: SignedDuration = SignedDuration::from_mins(2);

/// Writes the manifests into the run's directory, where a person can read and change them.
pub(super) fn write(run: &RunDir) -> Result<PathBuf> {
    let path = run.path().join(format!("{OPEN_NOW}.yaml"));
    fs::write(&path, manifests(Timestamp::now())).with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}

fn manifests(now: Timestamp) -> String {
    let leaves = now + STAYS;
    let returns = leaves + IS_AWAY;
    format!(
        r#"# A desktop that is in the cluster around the clock, but for a short break in ten minutes.
apiVersion: 5spot.finos.org/v1alpha1
kind: ScheduledMachine
metadata:
  name: {OPEN_NOW}
spec:
  schedule:
    daysOfWeek: ["mon-sun"]
    hoursOfDay: ["0-23"]
    overrides:
      - from: "{leaves:.0}"
        until: "{returns:.0}"
        active: false
        reason: a short break, to be seen leaving and coming back
  clusterName: {CLUSTER}
  bootstrapSpec:
    apiVersion: bootstrap.cluster.x-k8s.io/v1beta1
    kind: K0sWorkerConfig
    spec:
      version: v1.30.0+k0s.0
  infrastructureSpec:
    apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
    kind: RemoteMachine
    spec:
      address: 192.168.1.42
      port: 22
      user: admin
      useSudo: true
---
# Work for it: pods that have to leave when it does, and wait until it is back.
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 2
  selector:
    matchLabels: {{app: web}}
  template:
    metadata:
      labels: {{app: web}}
    spec:
      containers:
        - name: web
          image: nginx
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use fivespot_api::ScheduledMachine;

    #[test]
    fn the_machine_is_one_that_the_types_can_read() {
        let text = manifests("2026-11-16T09:00:00.5Z".parse().unwrap());
        let machine: ScheduledMachine = serde_saphyr::from_str(text.split("---\n").next().unwrap()).unwrap();
        assert_eq!(machine.spec.schedule.overrides[0].from, "2026-11-16T09:10:00Z");
        assert_eq!(machine.spec.schedule.overrides[0].until, "2026-11-16T09:12:00Z");
    }
}
