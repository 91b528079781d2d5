//! The programs a testbed runs, built once from pinned Go modules and kept outside `target/`.
//!
//! Each module lands in `<cache>/<name>-<hash>/`, the hash being that of everything its build depends on. A directory
//! of that name is therefore either whole and right or absent: builds happen in a sibling directory that is renamed
//! into place at the end, under a lock that only one process holds. When all directories are there, nothing is run,
//! not even `go`.

mod build;
mod module;
mod prerequisites;
mod progress;

use std::path::{Path, PathBuf};
use std::{env, fs, io};

pub use self::progress::{Progress, ProgressPrinter};

use self::build::{Workshop, sweep_unfinished};
use self::module::{CAPI, GoModule, HELM, KUBE, KWOK, PROMTOOL};

/// Where the programs and the manifests that belong to them are.
#[derive(Debug, Clone)]
pub struct Artifacts {
    cache: PathBuf,
    kube: PathBuf,
    capi: PathBuf,
    kwok: PathBuf,
}

/// Why the programs are not there.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// Neither `FIVESPOT_TESTBED`, `XDG_CACHE_HOME` nor `HOME` says where to keep what is built.
    #[error("no place for the testbed's programs: set FIVESPOT_TESTBED to a directory that may grow to 1 GB")]
    NoCacheDirectory,
    /// A build is needed and there is no Go.
    #[error(
        "`go` was not found, and the testbed's programs are not built yet. Install Go {version} or newer \
         (https://go.dev/dl, or your distribution's package) and see that `go` is on the PATH; it is needed once"
    )]
    GoMissing {
        /// The version that go.mod asks for.
        version: String,
    },
    /// A build is needed and Go is older than the modules, and than the means to fetch a newer one.
    #[error("{found} is too old to build the testbed's programs: install Go {version} or newer (https://go.dev/dl)")]
    GoTooOld {
        /// The version that is there.
        found: String,
        /// The version that go.mod asks for.
        version: String,
    },
    /// The Go caches and the result would not fit.
    #[error(
        "building the testbed's programs needs {needed_gb} GB of free disk, and {} has {free_gb} GB; \
         FIVESPOT_TESTBED, GOCACHE and GOMODCACHE may point elsewhere", at.display()
    )]
    DiskFull {
        /// The directory whose file system is too full.
        at: PathBuf,
        /// What is free there.
        free_gb: u64,
        /// What a cold build takes.
        needed_gb: u64,
    },
    /// `go` ran and failed.
    #[error("building {module} failed: {command}\n{tail}")]
    BuildFailed {
        /// The module under `crates/testbed/go`.
        module: &'static str,
        /// What was run.
        command: String,
        /// The end of its output.
        tail: String,
    },
    /// The file system said no.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

impl ArtifactError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::Io { path: path.to_owned(), source }
    }
}

impl Artifacts {
    /// Finds the programs in the cache directory, and builds those that are missing.
    ///
    /// The cache directory is `$FIVESPOT_TESTBED`, else `5spot-testbed` in the user's cache directory.
    pub fn ensure(progress: &mut dyn FnMut(Progress)) -> Result<Self, ArtifactError> {
        Self::ensure_in(&cache_directory()?, progress)
    }

    /// The same, in a given cache directory.
    pub fn ensure_in(cache: &Path, progress: &mut dyn FnMut(Progress)) -> Result<Self, ArtifactError> {
        // Go and the servers are started in directories of their own.
        let cache = &std::path::absolute(cache).map_err(ArtifactError::io(cache))?;
        fs::create_dir_all(cache).map_err(ArtifactError::io(cache))?;
        let sources = sources();
        let workshop = Workshop::new(cache, &sources, "go");
        sweep_unfinished(cache);
        workshop.check(&[&KUBE, &CAPI, &KWOK])?;
        Ok(Self {
            cache: cache.clone(),
            kube: workshop.ensure(&KUBE, progress)?,
            capi: workshop.ensure(&CAPI, progress)?,
            kwok: workshop.ensure(&KWOK, progress)?,
        })
    }

    /// Helm, which no testbed needs: built when somebody asks for it.
    pub fn helm(&self, progress: &mut dyn FnMut(Progress)) -> Result<PathBuf, ArtifactError> {
        Ok(self.on_demand(&HELM, progress)?.join(HELM.program))
    }

    /// Prometheus' `promtool`, and beside it in `crds` the kinds of the Prometheus operator: built when somebody asks.
    pub fn promtool(&self, progress: &mut dyn FnMut(Progress)) -> Result<PathBuf, ArtifactError> {
        Ok(self.on_demand(&PROMTOOL, progress)?.join(PROMTOOL.program))
    }

    fn on_demand(&self, module: &GoModule, progress: &mut dyn FnMut(Progress)) -> Result<PathBuf, ArtifactError> {
        let sources = sources();
        let workshop = Workshop::new(&self.cache, &sources, "go");
        workshop.check(&[module])?;
        workshop.ensure(module, progress)
    }

    /// The directory that holds programs and runs.
    pub fn cache(&self) -> &Path {
        &self.cache
    }

    /// One of etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet and kubectl.
    pub fn kubernetes(&self, component: &str) -> PathBuf {
        self.kube.join(component)
    }

    /// The Cluster API core manager.
    pub fn cluster_api(&self) -> PathBuf {
        self.capi.join(CAPI.program)
    }

    /// Cluster API's `CustomResourceDefinitions`, one per file, as published.
    pub fn cluster_api_crds(&self) -> PathBuf {
        self.capi.join("crds")
    }

    /// Cluster API's webhook configurations, as published.
    pub fn cluster_api_webhooks(&self) -> PathBuf {
        self.capi.join("webhooks.yaml")
    }

    /// KWOK.
    pub fn kwok(&self) -> PathBuf {
        self.kwok.join(KWOK.program)
    }

    /// The stages that make KWOK's Nodes Ready and its Pods run, complete and go.
    pub fn kwok_stages(&self) -> PathBuf {
        self.kwok.join("stages")
    }
}

/// The Go modules of the testbed.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("go")
}

/// Where what is built is kept: `$FIVESPOT_TESTBED`, else `5spot-testbed` in the user's cache directory.
pub fn cache_directory() -> Result<PathBuf, ArtifactError> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("FIVESPOT_TESTBED")
        .or_else(|| {
            let caches = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
            Some(caches.join("5spot-testbed"))
        })
        .ok_or(ArtifactError::NoCacheDirectory)
}
