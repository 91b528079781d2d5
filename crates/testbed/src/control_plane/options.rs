//! Options of a control plane.

/// A user that authenticates with a static token.
#[derive(Debug, Clone)]
pub struct User {
    pub name: String,
    pub groups: Vec<String>,
}

/// How pods are admitted and run; each variant includes the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pods {
    /// Without ServiceAccount admission.
    Bare,
    /// With the token of an existing ServiceAccount mounted.
    WithServiceAccounts,
    /// Run by kubelets that authenticate with client certificates.
    OnRealNodes,
}

/// Options of [`super::ControlPlane::start`].
#[derive(Debug, Clone)]
pub struct ControlPlaneOptions {
    pub(super) name: String,
    pub(super) users: Vec<User>,
    pub(super) controller_manager: bool,
    pub(super) scheduler: bool,
    pub(super) pods: Pods,
    pub(super) api_server_flags: Vec<String>,
    pub(super) controller_manager_flags: Vec<String>,
    pub(super) rare_heartbeats: bool,
}

impl ControlPlaneOptions {
    /// All components and the built-in users. `name` becomes part of the run directory's name.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            users: Vec::new(),
            controller_manager: true,
            scheduler: true,
            pods: Pods::Bare,
            api_server_flags: Vec::new(),
            controller_manager_flags: Vec::new(),
            rare_heartbeats: false,
        }
    }

    /// Adds a user. Without a RoleBinding it has the permissions of every authenticated user.
    #[must_use]
    pub fn user(mut self, name: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        self.users.push(User { name: name.to_owned(), groups });
        self
    }

    /// Disables garbage collection, namespace deletion and Node lifecycle.
    #[must_use]
    pub fn without_controller_manager(mut self) -> Self {
        self.controller_manager = false;
        self
    }

    /// Pods without `nodeName` stay unscheduled.
    #[must_use]
    pub fn without_scheduler(mut self) -> Self {
        self.scheduler = false;
        self
    }

    /// Enables the ServiceAccount admission plugin: pods need an existing ServiceAccount and get its token mounted, as a
    /// kubelet expects.
    #[must_use]
    pub fn with_service_account_admission(mut self) -> Self {
        self.pods = self.pods.max(Pods::WithServiceAccounts);
        self
    }

    /// Accepts the kubelet of a [`crate::RealNode`]: client certificates, the `NodeRestriction` and the ServiceAccount
    /// admission plugins.
    #[must_use]
    pub fn for_real_nodes(mut self) -> Self {
        self.pods = Pods::OnRealNodes;
        self
    }

    /// Makes simulated Nodes renew their Leases every quarter of an hour. With the usual interval of ten seconds, the
    /// heartbeats of thousands of Nodes would be the load that a benchmark measures.
    #[must_use]
    pub fn rare_heartbeats(mut self) -> Self {
        self.rare_heartbeats = true;
        self.controller_manager_flag("--node-monitor-grace-period=2h")
    }

    /// Adds a flag of kube-apiserver, as `--flag=value`.
    #[must_use]
    pub fn api_server_flag(mut self, flag: impl Into<String>) -> Self {
        self.api_server_flags.push(flag.into());
        self
    }

    /// Adds a flag of kube-controller-manager, as `--flag=value`.
    #[must_use]
    pub fn controller_manager_flag(mut self, flag: impl Into<String>) -> Self {
        self.controller_manager_flags.push(flag.into());
        self
    }
}

impl Default for ControlPlaneOptions {
    fn default() -> Self {
        Self::named("control-plane")
    }
}
