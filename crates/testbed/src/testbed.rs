//! A control plane and, when asked for, everything that turns a Machine into a Node on it.

use tokio::sync::OnceCell;

use crate::audit::AuditLog;
use crate::capi::ClusterApi;
use crate::cluster::{self, Home};
use crate::control_plane::{ControlPlane, ControlPlaneOptions, StartError};
use crate::kwok::Kwok;
use crate::namespace::TestNamespace;
use crate::product::shipped;
use crate::provider::Provider;

/// Cluster API, KWOK and the simulated provider, on one control plane.
#[derive(Debug)]
pub struct Fleet {
    /// The real Cluster API manager.
    pub cluster_api: ClusterApi,
    /// Keeps the Nodes alive.
    pub kwok: Kwok,
    /// Plays k0smotron.
    pub provider: Provider,
}

/// A control plane, with a [`Fleet`] from the first time it is asked for.
#[derive(Debug)]
pub struct Testbed {
    // Dropped first: nothing of it shall see the control plane go.
    fleet: OnceCell<Fleet>,
    control_plane: ControlPlane,
}

impl Testbed {
    /// Starts a control plane. Several testbeds can run at once.
    pub async fn start(options: ControlPlaneOptions) -> Result<Self, StartError> {
        Ok(Self { fleet: OnceCell::new(), control_plane: ControlPlane::start(options).await? })
    }

    /// Starts a control plane with its fleet.
    pub async fn start_with_fleet(options: ControlPlaneOptions) -> Result<Self, StartError> {
        let testbed = Self::start(options).await?;
        testbed.try_fleet().await?;
        Ok(testbed)
    }

    /// The control plane.
    pub fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    /// A new admin client for the current tokio runtime.
    pub fn client(&self) -> kube::Client {
        self.control_plane.client()
    }

    /// A namespace for one test.
    pub async fn namespace(&self, prefix: &str) -> TestNamespace {
        self.control_plane.namespace(prefix).await
    }

    /// What the API server was asked, by whom.
    pub fn audit(&self) -> AuditLog {
        self.control_plane.audit()
    }

    /// Cluster API, KWOK and the provider, started by the first call. Panics, saying why, if they do not start.
    pub async fn fleet(&self) -> &Fleet {
        self.try_fleet().await.unwrap_or_else(|error| panic!("the fleet did not start: {error}"))
    }

    /// The same with the reason as an error.
    pub async fn try_fleet(&self) -> Result<&Fleet, StartError> {
        self.fleet.get_or_try_init(|| start_fleet(&self.control_plane)).await
    }

    /// A Cluster whose machines join this control plane itself, ready to be given Machines.
    pub async fn cluster(&self, namespace: &TestNamespace, name: &str) -> Result<(), StartError> {
        let provider = &self.try_fleet().await?.provider;
        cluster::create(provider, namespace, name, Home::Itself(&self.control_plane)).await
    }

    /// A Cluster whose machines join another control plane.
    pub async fn cluster_on(
        &self,
        workload: &ControlPlane,
        namespace: &TestNamespace,
        name: &str,
    ) -> Result<(), StartError> {
        let provider = &self.try_fleet().await?.provider;
        cluster::create(provider, namespace, name, Home::Elsewhere(workload)).await
    }

    /// Ends everything in order, giving each server a while. Dropping the testbed is the quicker way.
    pub async fn stop(self) {
        drop(self.fleet);
        self.control_plane.stop().await;
    }

    /// The process ids of all its servers.
    pub fn pids(&self) -> Vec<u32> {
        let fleet = self.fleet.get().map(|fleet| [fleet.cluster_api.process().pid(), fleet.kwok.process().pid()]);
        self.control_plane.pids().into_iter().chain(fleet.into_iter().flatten()).collect()
    }
}

async fn start_fleet(plane: &ControlPlane) -> Result<Fleet, StartError> {
    let (cluster_api, kwok) = tokio::try_join!(ClusterApi::start(plane), Kwok::start(plane))?;
    let provider = Provider::start(plane).await?;
    Ok(Fleet { cluster_api, kwok, provider })
}

/// The testbed of this test binary, with its fleet: started by the first test that asks, ended with the process.
///
/// Panics with the reason if it does not start; later tests then fail at once with the same reason.
pub async fn shared() -> &'static Testbed {
    static FLEET: OnceCell<Result<(), String>> = OnceCell::const_new();
    let testbed = shared_control_plane().await;
    let started =
        FLEET.get_or_init(async || testbed.try_fleet().await.map(drop).map_err(|error| error.to_string())).await;
    match started {
        Ok(()) => testbed,
        Err(reason) => panic!("the fleet did not start: {reason}"),
    }
}

/// The same testbed without waiting for Cluster API: for tests that need an API server only.
pub async fn shared_control_plane() -> &'static Testbed {
    static SHARED: OnceCell<Result<Testbed, String>> = OnceCell::const_new();
    let started = SHARED
        .get_or_init(async || {
            Testbed::start(ControlPlaneOptions::named(&binary_name())).await.map_err(|error| error.to_string())
        })
        .await;
    match started {
        Ok(testbed) => testbed,
        Err(reason) => panic!("the testbed did not start: {reason}"),
    }
}

/// The same testbed with the ScheduledMachine CRD as it is shipped, installed as a user installs it.
pub async fn shared_with_crd() -> &'static Testbed {
    static INSTALLED: OnceCell<()> = OnceCell::const_new();
    let testbed = shared_control_plane().await;
    let crd = shipped("deploy/crds/scheduledmachine.yaml");
    let install = async || {
        let installed = testbed.control_plane().apply(&crd).await;
        installed.unwrap_or_else(|error| panic!("the CRD was not installed: {error}"));
    };
    INSTALLED.get_or_init(install).await;
    testbed
}

/// The test binary's name without the hash that cargo appends: it tells the run directories apart.
fn binary_name() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let stem = path.file_stem().map_or_else(|| "tests".into(), |stem| stem.to_string_lossy().into_owned());
    stem.rsplit_once('-').map_or(stem.clone(), |(name, _)| name.to_owned())
}
