//! What a control plane shall be like.

/// A user the API server knows by a token of its own.
#[derive(Debug, Clone)]
pub struct User {
    /// The name that RBAC and the audit log see.
    pub name: String,
    /// The groups it is in.
    pub groups: Vec<String>,
}

/// What pods are like; each has what those before it have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pods {
    /// As they were created.
    Bare,
    /// Each with the token of a `ServiceAccount` that exists.
    WithServiceAccounts,
    /// Run by kubelets, who have certificates.
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
}

impl ControlPlaneOptions {
    /// All components, and the users that come with the testbed. The name becomes part of the run directory's.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            users: Vec::new(),
            controller_manager: true,
            scheduler: true,
            pods: Pods::Bare,
            api_server_flags: Vec::new(),
            controller_manager_flags: Vec::new(),
        }
    }

    /// One user more. Without a `RoleBinding` it may do what every authenticated user may.
    #[must_use]
    pub fn user(mut self, name: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        self.users.push(User { name: name.to_owned(), groups });
        self
    }

    /// No garbage collection, no namespace deletion, no Node lifecycle.
    #[must_use]
    pub fn without_controller_manager(mut self) -> Self {
        self.controller_manager = false;
        self
    }

    /// Pods stay where they are put.
    #[must_use]
    pub fn without_scheduler(mut self) -> Self {
        self.scheduler = false;
        self
    }

    /// Leaves the `ServiceAccount` admission plugin on: pods need an existing `ServiceAccount` and get its token mounted,
    /// as a real kubelet expects.
    #[must_use]
    pub fn with_service_account_admission(mut self) -> Self {
        self.pods = self.pods.max(Pods::WithServiceAccounts);
        self
    }

    /// Lets kubelets in, as [`crate::RealNode`] starts them: by a client certificate, held to what is theirs, and with
    /// the `ServiceAccount` admission plugin on.
    #[must_use]
    pub fn for_real_nodes(mut self) -> Self {
        self.pods = Pods::OnRealNodes;
        self
    }

    /// A further flag for kube-apiserver, as `--flag=value`.
    #[must_use]
    pub fn api_server_flag(mut self, flag: impl Into<String>) -> Self {
        self.api_server_flags.push(flag.into());
        self
    }

    /// A further flag for kube-controller-manager, as `--flag=value`.
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
