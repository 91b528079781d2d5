//! The programs that a testbed runs, built once from pinned Go modules and kept outside `target/`.
//!
//! Each module is built into `<cache>/<name>-<hash>/`, where the hash covers every input of its build. A directory of
//! that name is always complete: a build writes to a sibling directory and renames it at the end, under a lock that one
//! process holds. If all directories exist, nothing is executed, not even `go`.

mod builder;
mod module;
mod prerequisites;
mod progress;

use std::path::{Path, PathBuf};
use std::{env, fs, io};

pub use self::progress::{Progress, ProgressPrinter};

use self::builder::{Builder, remove_unfinished};
use self::module::{CAPI, GoModule, HELM, KUBE, KWOK, PROMTOOL};

/// Paths of the programs and of the manifests that belong to them.
#[derive(Debug, Clone)]
pub struct Artifacts {
    cache: PathBuf,
    kube: PathBuf,
    capi: PathBuf,
    kwok: PathBuf,
}

/// Why the programs cannot be found or built.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// None of `FIVESPOT_TESTBED`, `XDG_CACHE_HOME` and `HOME` is set.
    #[error("no cache directory for the testbed: set FIVESPOT_TESTBED to a directory that may grow to 1 GB")]
    NoCacheDirectory,
    #[error(
        "`go` was not found, and the testbed's programs are not built yet. Install Go {version} or newer \
         (https://go.dev/dl, or your distribution's package) and put `go` on the PATH; it is needed once"
    )]
    GoMissing {
        /// The version that go.mod requires.
        version: String,
    },
    /// This Go is older than the modules require, and cannot download a newer toolchain.
    #[error("{found} is too old to build the testbed's programs: install Go {version} or newer (https://go.dev/dl)")]
    GoTooOld {
        found: String,
        /// The version that go.mod requires.
        version: String,
    },
    /// The Go caches and the programs would not fit.
    #[error(
        "cannot build the testbed's programs: {} has {free_gb} GB of free disk, {needed_gb} GB are needed; \
         FIVESPOT_TESTBED, GOCACHE and GOMODCACHE select other directories", at.display()
    )]
    DiskFull { at: PathBuf, free_gb: u64, needed_gb: u64 },
    #[error("cannot build {module}: {command}\n{tail}")]
    BuildFailed {
        /// The module under `crates/testbed/go`.
        module: &'static str,
        command: String,
        /// The last lines of the output.
        tail: String,
    },
    #[error("cannot access {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl ArtifactError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::Io { path: path.to_owned(), source }
    }
}

impl Artifacts {
    /// Finds the programs in the [`cache_directory`] and builds the missing ones.
    pub fn ensure(progress: &mut dyn FnMut(Progress)) -> Result<Self, ArtifactError> {
        Self::ensure_in(&cache_directory()?, progress)
    }

    /// [`Self::ensure`] in a given cache directory.
    pub fn ensure_in(cache: &Path, progress: &mut dyn FnMut(Progress)) -> Result<Self, ArtifactError> {
        // Go and the servers run in other working directories.
        let cache = &std::path::absolute(cache).map_err(ArtifactError::io(cache))?;
        fs::create_dir_all(cache).map_err(ArtifactError::io(cache))?;
        let sources = sources();
        let builder = Builder::new(cache, &sources, "go");
        remove_unfinished(cache);
        builder.check(&[&KUBE, &CAPI, &KWOK])?;
        Ok(Self {
            cache: cache.clone(),
            kube: builder.ensure(&KUBE, progress)?,
            capi: builder.ensure(&CAPI, progress)?,
            kwok: builder.ensure(&KWOK, progress)?,
        })
    }

    /// The path of `helm`. Built by the first call, because most tests do not need it.
    pub fn helm(&self, progress: &mut dyn FnMut(Progress)) -> Result<PathBuf, ArtifactError> {
        Ok(self.on_demand(&HELM, progress)?.join(HELM.program))
    }

    /// The path of `promtool`; `crds` beside it holds the CRDs of the Prometheus operator. Built by the first call.
    pub fn promtool(&self, progress: &mut dyn FnMut(Progress)) -> Result<PathBuf, ArtifactError> {
        Ok(self.on_demand(&PROMTOOL, progress)?.join(PROMTOOL.program))
    }

    fn on_demand(&self, module: &GoModule, progress: &mut dyn FnMut(Progress)) -> Result<PathBuf, ArtifactError> {
        let sources = sources();
        let builder = Builder::new(&self.cache, &sources, "go");
        builder.check(&[module])?;
        builder.ensure(module, progress)
    }

    /// The cache directory, which holds programs and run directories.
    pub fn cache(&self) -> &Path {
        &self.cache
    }

    /// The path of etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet or kubectl.
    pub fn kubernetes(&self, component: &str) -> PathBuf {
        self.kube.join(component)
    }

    /// The path of the Cluster API core manager.
    pub fn cluster_api(&self) -> PathBuf {
        self.capi.join(CAPI.program)
    }

    /// The directory of Cluster API's CustomResourceDefinitions, one per file, as published.
    pub fn cluster_api_crds(&self) -> PathBuf {
        self.capi.join("crds")
    }

    /// The file with Cluster API's webhook configurations, as published.
    pub fn cluster_api_webhooks(&self) -> PathBuf {
        self.capi.join("webhooks.yaml")
    }

    pub fn kwok(&self) -> PathBuf {
        self.kwok.join(KWOK.program)
    }

    /// The directory of the KWOK stages that make Nodes Ready and let Pods run, complete and terminate.
    pub fn kwok_stages(&self) -> PathBuf {
        self.kwok.join("stages")
    }
}

/// The Go modules of the testbed.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("go")
}

/// `$FIVESPOT_TESTBED`, or `5spot-testbed` in the user's cache directory.
pub fn cache_directory() -> Result<PathBuf, ArtifactError> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("FIVESPOT_TESTBED")
        .or_else(|| {
            let caches = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
            Some(caches.join("5spot-testbed"))
        })
        .ok_or(ArtifactError::NoCacheDirectory)
}
