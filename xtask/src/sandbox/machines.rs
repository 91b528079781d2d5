//! A ScheduledMachine whose window is open now, and a Deployment that runs on it.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use fivespot_testbed::run_dir::RunDir;
use jiff::{SignedDuration, Timestamp};

use super::CLUSTER;

/// The name of the ScheduledMachine.
pub(super) const OPEN_NOW: &str = "desk";
/// How long the window stays open.
const OPEN: SignedDuration = SignedDuration::from_mins(10);
/// How long the window is then closed.
const CLOSED: SignedDuration = SignedDuration::from_mins(2);

/// Writes the manifests into the run directory, where the user can read and edit them.
pub(super) fn write(run: &RunDir) -> Result<PathBuf> {
    let path = run.path().join(format!("{OPEN_NOW}.yaml"));
    fs::write(&path, manifests(Timestamp::now())).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

fn manifests(now: Timestamp) -> String {
    let closes = now + OPEN;
    let reopens = closes + CLOSED;
    format!(
        r#"# A desktop whose window is always open, except for two minutes in ten minutes from now.
apiVersion: 5spot.finos.org/v1alpha1
kind: ScheduledMachine
metadata:
  name: {OPEN_NOW}
spec:
  schedule:
    daysOfWeek: ["mon-sun"]
    hoursOfDay: ["0-23"]
    overrides:
      - from: "{closes:.0}"
        until: "{reopens:.0}"
        active: false
        reason: demonstrates a graceful shutdown
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
# Pods that are evicted when the window closes, and pending until it reopens.
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
    fn manifest_parses_and_has_the_closed_window() {
        let text = manifests("2026-11-16T09:00:00.5Z".parse().unwrap());
        let machine: ScheduledMachine = serde_saphyr::from_str(text.split("---\n").next().unwrap()).unwrap();
        assert_eq!(machine.spec.schedule.overrides[0].from, "2026-11-16T09:10:00Z");
        assert_eq!(machine.spec.schedule.overrides[0].until, "2026-11-16T09:12:00Z");
    }
}
