//! Command lines of the servers.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::credentials::Credentials;
use super::options::{ControlPlaneOptions, Pods};
use crate::artifacts::Artifacts;

/// Inputs of the command lines that do not change between attempts to start.
pub(super) struct ServerConfig {
    pub(super) artifacts: Artifacts,
    pub(super) options: ControlPlaneOptions,
    pub(super) credentials: Credentials,
    pub(super) run: PathBuf,
}

/// The ports of one attempt to start.
#[derive(Debug, Clone, Copy)]
pub(super) struct PortNumbers {
    pub(super) etcd_client: u16,
    pub(super) etcd_peer: u16,
    pub(super) api_server: u16,
}

impl ServerConfig {
    pub(super) fn audit_log(&self) -> PathBuf {
        self.run.join("audit.log")
    }

    pub(super) fn etcd_data(&self) -> PathBuf {
        self.run.join("etcd")
    }

    pub(super) fn etcd(&self, ports: PortNumbers) -> Command {
        let client = format!("http://127.0.0.1:{}", ports.etcd_client);
        let peer = format!("http://127.0.0.1:{}", ports.etcd_peer);
        let mut command = Command::new(self.artifacts.kubernetes("etcd"));
        command
            .arg(flag("data-dir", &self.etcd_data()))
            // The data need not survive a power failure, and fsync dominates the cost of a write.
            .arg("--unsafe-no-fsync")
            .args([format!("--listen-client-urls={client}"), format!("--advertise-client-urls={client}")])
            .args([format!("--listen-peer-urls={peer}"), format!("--initial-advertise-peer-urls={peer}")])
            .arg(format!("--initial-cluster=default={peer}"))
            .arg("--quota-backend-bytes=4294967296");
        command
    }

    pub(super) fn api_server(&self, ports: PortNumbers) -> Command {
        let keys = &self.credentials;
        let mut command = Command::new(self.artifacts.kubernetes("kube-apiserver"));
        command
            .arg(format!("--etcd-servers=http://127.0.0.1:{}", ports.etcd_client))
            .arg(format!("--secure-port={}", ports.api_server))
            .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
            // A loopback address is not a valid endpoint of the `kubernetes` Service.
            .arg("--endpoint-reconciler-type=none")
            .arg("--service-cluster-ip-range=10.96.0.0/16")
            .arg(flag("tls-cert-file", &keys.serving_certificate))
            .arg(flag("tls-private-key-file", &keys.serving_key))
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg(flag("service-account-key-file", &keys.service_account_public_key))
            .arg(flag("service-account-signing-key-file", &keys.service_account_key))
            .arg(flag("token-auth-file", &keys.token_file))
            .arg("--authorization-mode=Node,RBAC")
            .args(["--allow-privileged=true", "--profiling=false"])
            .arg(flag("audit-policy-file", &keys.audit_policy))
            .arg(flag("audit-log-path", &self.audit_log()))
            // Tests read the log as one file, so it must not be rotated.
            .arg("--audit-log-maxsize=16384");
        if self.options.pods < Pods::WithServiceAccounts {
            command.arg("--disable-admission-plugins=ServiceAccount");
        }
        if self.options.pods == Pods::OnRealNodes {
            command.arg(flag("client-ca-file", &keys.authority_file)).arg("--enable-admission-plugins=NodeRestriction");
        }
        command.args(&self.options.api_server_flags);
        command
    }

    pub(super) fn controller_manager(&self, kubeconfig: &Path) -> Command {
        let keys = &self.credentials;
        let mut command = Command::new(self.artifacts.kubernetes("kube-controller-manager"));
        command
            .arg(flag("kubeconfig", kubeconfig))
            .args(["--leader-elect=false", "--secure-port=0", "--profiling=false"])
            // One user per controller, as in production, so that the audit log distinguishes them.
            .arg("--use-service-account-credentials=true")
            .arg(flag("service-account-private-key-file", &keys.service_account_key))
            .arg(flag("root-ca-file", &keys.authority_file))
            // The default of 20 requests per second would slow down every test.
            .args(["--kube-api-qps=500", "--kube-api-burst=1000"])
            .args(&self.options.controller_manager_flags);
        command
    }

    pub(super) fn scheduler(&self, kubeconfig: &Path) -> Command {
        let mut command = Command::new(self.artifacts.kubernetes("kube-scheduler"));
        command
            .arg(flag("kubeconfig", kubeconfig))
            .args(["--leader-elect=false", "--secure-port=0", "--profiling=false"])
            .args(["--kube-api-qps=500", "--kube-api-burst=1000"]);
        command
    }
}

fn flag(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}
