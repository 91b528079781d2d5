//! A control plane and, on demand, Cluster API, KWOK and the simulated provider.

use tokio::sync::OnceCell;

use crate::audit::AuditLog;
use crate::capi::ClusterApi;
use crate::cluster::{self, Workload};
use crate::control_plane::{ControlPlane, ControlPlaneOptions, StartError};
use crate::install::repo_path;
use crate::kwok::Kwok;
use crate::namespace::TestNamespace;
use crate::provider::Provider;

/// Cluster API, KWOK and the simulated provider of one control plane.
#[derive(Debug)]
pub struct Fleet {
    pub cluster_api: ClusterApi,
    pub kwok: Kwok,
    pub provider: Provider,
}

/// A control plane with a [`Fleet`] that is started on demand.
#[derive(Debug)]
pub struct Testbed {
    // Dropped first, so that it does not run without its control plane.
    fleet: OnceCell<Fleet>,
    control_plane: ControlPlane,
}

impl Testbed {
    /// Starts a control plane. Several testbeds can run at the same time.
    pub async fn start(options: ControlPlaneOptions) -> Result<Self, StartError> {
        Ok(Self { fleet: OnceCell::new(), control_plane: ControlPlane::start(options).await? })
    }

    /// Starts a control plane and its fleet.
    pub async fn start_with_fleet(options: ControlPlaneOptions) -> Result<Self, StartError> {
        let testbed = Self::start(options).await?;
        testbed.try_fleet().await?;
        Ok(testbed)
    }

    pub fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    /// A new admin client, bound to the current tokio runtime.
    pub fn client(&self) -> kube::Client {
        self.control_plane.client()
    }

    /// Creates a namespace for one test.
    pub async fn namespace(&self, prefix: &str) -> TestNamespace {
        self.control_plane.namespace(prefix).await
    }

    pub fn audit(&self) -> AuditLog {
        self.control_plane.audit()
    }

    /// [`Self::try_fleet`], which panics on an error.
    pub async fn fleet(&self) -> &Fleet {
        self.try_fleet()
            .await
            .unwrap_or_else(|error| panic!("cannot start Cluster API, KWOK and the provider: {error}"))
    }

    /// Cluster API, KWOK and the provider, started by the first call.
    pub async fn try_fleet(&self) -> Result<&Fleet, StartError> {
        self.fleet.get_or_try_init(|| start_fleet(&self.control_plane)).await
    }

    /// Creates a Cluster whose machines join this control plane, and waits until it is ready for Machines.
    pub async fn cluster(&self, namespace: &TestNamespace, name: &str) -> Result<(), StartError> {
        let provider = &self.try_fleet().await?.provider;
        cluster::create(provider, namespace, name, Workload::Management(&self.control_plane)).await
    }

    /// Creates a Cluster whose machines join another control plane.
    pub async fn cluster_on(
        &self,
        workload: &ControlPlane,
        namespace: &TestNamespace,
        name: &str,
    ) -> Result<(), StartError> {
        let provider = &self.try_fleet().await?.provider;
        cluster::create(provider, namespace, name, Workload::Separate(workload)).await
    }

    /// Stops all servers in order with SIGTERM. Dropping the testbed is faster.
    pub async fn stop(self) {
        drop(self.fleet);
        self.control_plane.stop().await;
    }

    /// Process IDs of all servers.
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

/// The testbed of this test binary with its fleet, started by the first caller and stopped with the process.
///
/// Panics if it does not start; later callers then fail immediately with the same error.
pub async fn shared() -> &'static Testbed {
    static FLEET: OnceCell<Result<(), StartError>> = OnceCell::const_new();
    let testbed = shared_control_plane().await;
    match FLEET.get_or_init(async || testbed.try_fleet().await.map(drop)).await {
        Ok(()) => testbed,
        Err(error) => panic!("cannot start Cluster API, KWOK and the provider: {error}"),
    }
}

/// The testbed of [`shared`] without waiting for its fleet: for tests that need only an API server.
pub async fn shared_control_plane() -> &'static Testbed {
    static SHARED: OnceCell<Result<Testbed, StartError>> = OnceCell::const_new();
    match SHARED.get_or_init(async || Testbed::start(ControlPlaneOptions::named(&binary_name())).await).await {
        Ok(testbed) => testbed,
        Err(error) => panic!("cannot start the testbed: {error}"),
    }
}

/// The testbed of [`shared_control_plane`] with the shipped ScheduledMachine CRD.
pub async fn shared_with_crd() -> &'static Testbed {
    static INSTALLED: OnceCell<()> = OnceCell::const_new();
    let testbed = shared_control_plane().await;
    let crd = repo_path("deploy/crds/scheduledmachine.yaml");
    let install = async || {
        let installed = testbed.control_plane().apply(&crd).await;
        installed.unwrap_or_else(|error| panic!("cannot install the CRD: {error}"));
    };
    INSTALLED.get_or_init(install).await;
    testbed
}

/// The name of the test binary without the hash that cargo appends, for the name of the run directory.
fn binary_name() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let stem = path.file_stem().map_or_else(|| "tests".into(), |stem| stem.to_string_lossy().into_owned());
    stem.rsplit_once('-').map_or(stem.clone(), |(name, _)| name.to_owned())
}
