//! The Go modules under `crates/testbed/go`.

use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

use sha2::{Digest, Sha256};

use super::ArtifactError;

/// A Go module, and what its artifact directory contains.
pub(super) struct GoModule {
    /// The directory under `crates/testbed/go`, and the prefix of the artifact directory.
    pub(super) name: &'static str,
    /// The package whose `main` is built.
    pub(super) package: &'static str,
    /// The name of the binary.
    pub(super) program: &'static str,
    /// Further names of the binary.
    pub(super) symlinks: &'static [&'static str],
    pub(super) ldflags: &'static str,
    /// Files of dependencies that are needed at run time.
    pub(super) extras: &'static [Extra],
}

/// A file, or the files of a directory, of a module in Go's module cache.
pub(super) struct Extra {
    pub(super) of_module: &'static str,
    pub(super) from: &'static str,
    pub(super) to: &'static str,
}

pub(super) const KUBE: GoModule = GoModule {
    name: "kube",
    package: ".",
    program: "kube",
    symlinks: &["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"],
    // Without this the version is v0.0.0, and servers and clients depend on it.
    ldflags: "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3 \
              -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36",
    extras: &[],
};

pub(super) const CAPI: GoModule = GoModule {
    name: "capi",
    package: "sigs.k8s.io/cluster-api",
    program: "cluster-api",
    symlinks: &[],
    ldflags: "-s -w",
    extras: &[
        Extra { of_module: "sigs.k8s.io/cluster-api", from: "config/crd/bases", to: "crds" },
        Extra { of_module: "sigs.k8s.io/cluster-api", from: "config/webhook/manifests.yaml", to: "webhooks.yaml" },
    ],
};

pub(super) const KWOK: GoModule = GoModule {
    name: "kwok",
    package: "sigs.k8s.io/kwok/cmd/kwok",
    program: "kwok",
    symlinks: &[],
    ldflags: "-s -w",
    extras: &[
        stage("kustomize/stage/node/fast/node-initialize.yaml", "stages/node-initialize.yaml"),
        stage(
            "kustomize/stage/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
            "stages/node-heartbeat-with-lease.yaml",
        ),
        stage("kustomize/stage/pod/fast/pod-ready.yaml", "stages/pod-ready.yaml"),
        stage("kustomize/stage/pod/fast/pod-complete.yaml", "stages/pod-complete.yaml"),
        stage("kustomize/stage/pod/fast/pod-delete.yaml", "stages/pod-delete.yaml"),
    ],
};

pub(super) const HELM: GoModule = GoModule {
    name: "helm",
    package: "helm.sh/helm/v3/cmd/helm",
    program: "helm",
    symlinks: &[],
    // The version that Helm reports, and the Kubernetes version that `helm template` renders for by default.
    ldflags: "-s -w -X helm.sh/helm/v3/internal/version.version=v3.22.0 \
              -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=36",
    extras: &[],
};

pub(super) const PROMTOOL: GoModule = GoModule {
    name: "prometheus",
    package: "github.com/prometheus/prometheus/cmd/promtool",
    program: "promtool",
    symlinks: &[],
    ldflags: "-s -w",
    extras: &[
        operator_crd(
            "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
            "crds/prometheusrules.yaml",
        ),
        operator_crd(
            "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
            "crds/servicemonitors.yaml",
        ),
    ],
};

const OPERATOR: &str = "github.com/prometheus-operator/prometheus-operator";

const fn operator_crd(from: &'static str, to: &'static str) -> Extra {
    Extra { of_module: OPERATOR, from, to }
}

const fn stage(from: &'static str, to: &'static str) -> Extra {
    Extra { of_module: "sigs.k8s.io/kwok", from, to }
}

impl GoModule {
    /// `<name>-<hash>`, where the hash covers every input of the build.
    pub(super) fn directory_name(&self, sources: &Path) -> Result<String, ArtifactError> {
        let mut hash = Sha256::new();
        for file in ["go.mod", "go.sum", "main.go"] {
            let path = sources.join(self.name).join(file);
            match fs::read(&path) {
                Ok(content) => hash.update(content),
                // A module that builds a program of a dependency has no main.go.
                Err(absent) if absent.kind() == io::ErrorKind::NotFound && file == "main.go" => {}
                Err(source) => return Err(ArtifactError::Io { path, source }),
            }
            hash.update([0]);
        }
        for text in [self.package, self.program, self.ldflags].into_iter().chain(self.symlinks.iter().copied()) {
            hash.update(text);
            hash.update([0]);
        }
        for extra in self.extras {
            hash.update(extra.from);
            hash.update([0]);
            hash.update(extra.to);
            hash.update([0]);
        }
        let mut name = format!("{}-", self.name);
        for byte in &hash.finalize()[..8] {
            write!(name, "{byte:02x}").expect("writing to a String cannot fail");
        }
        Ok(name)
    }

    /// The Go version that the module's go.mod requires.
    pub(super) fn go_version(&self, sources: &Path) -> String {
        fs::read_to_string(sources.join(self.name).join("go.mod"))
            .ok()
            .and_then(|text| text.lines().find_map(|line| line.strip_prefix("go ").map(str::to_owned)))
            .unwrap_or_else(|| "1.26".to_owned())
    }
}
