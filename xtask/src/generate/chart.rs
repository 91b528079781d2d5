//! Copies of files from `deploy/` that the Helm chart includes unchanged: a chart cannot read files outside its directory.

use std::fs;

use anyhow::{Context as _, Result};

use super::Generated;
use crate::shell::root;

/// Source and destination of every copy.
const COPIES: [(&str, &str); 11] = [
    ("deploy/controller/serviceaccount.yaml", "charts/5-spot/files/serviceaccount.yaml"),
    ("deploy/controller/rbac.yaml", "charts/5-spot/files/rbac.yaml"),
    ("deploy/controller/workload-access.yaml", "charts/5-spot/files/workload-access.yaml"),
    ("deploy/controller/management-nodes.yaml", "charts/5-spot/files/management-nodes.yaml"),
    ("deploy/node-agent/serviceaccount.yaml", "charts/5-spot/files/agent-serviceaccount.yaml"),
    ("deploy/node-agent/rbac.yaml", "charts/5-spot/files/agent-rbac.yaml"),
    ("deploy/node-agent/agent-scope.yaml", "charts/5-spot/files/agent-scope.yaml"),
    ("deploy/monitoring/servicemonitor.yaml", "charts/5-spot/files/servicemonitor.yaml"),
    ("deploy/monitoring/prometheusrule.yaml", "charts/5-spot/files/prometheusrule.yaml"),
    ("deploy/monitoring/node-agent/prometheusrule.yaml", "charts/5-spot/files/agent-prometheusrule.yaml"),
    ("deploy/monitoring/dashboard.json", "charts/5-spot/files/dashboard.json"),
];

pub(super) fn files(crd: &str, policy: &str) -> Result<Vec<Generated>> {
    let mut files = vec![
        Generated { path: "charts/5-spot/files/scheduledmachine.yaml", text: crd.to_owned() },
        Generated { path: "charts/5-spot/files/validatingadmissionpolicy.yaml", text: policy.to_owned() },
    ];
    for (from, to) in COPIES {
        let text = fs::read_to_string(root().join(from)).with_context(|| format!("cannot read {from}"))?;
        files.push(Generated { path: to, text });
    }
    Ok(files)
}
