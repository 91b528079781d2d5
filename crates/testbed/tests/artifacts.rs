//! The Go programs are built once, and later runs do not need Go.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::env;
use std::os::unix::fs::symlink;
use std::process::Command;

use fivespot_testbed::artifacts::{Artifacts, ProgressPrinter};

/// Set in a child of this test binary that has no Go on its PATH.
const WITHOUT_GO: &str = "FIVESPOT_TEST_WITHOUT_GO";

fn build_if_needed() -> Artifacts {
    let mut printer = ProgressPrinter::new();
    let built = Artifacts::ensure(&mut |step| printer.show(&step)).expect("the testbed's programs can be built");
    built.helm(&mut |step| printer.show(&step)).expect("Helm can be built");
    built.promtool(&mut |step| printer.show(&step)).expect("promtool can be built");
    built
}

#[test]
fn second_run_builds_nothing_and_needs_no_go() {
    if env::var_os(WITHOUT_GO).is_some() {
        let mut unexpected = |step| panic!("nothing should be built: {step:?}");
        let built = Artifacts::ensure(&mut unexpected).unwrap();
        built.helm(&mut unexpected).unwrap();
        built.promtool(&mut unexpected).unwrap();
        return;
    }
    build_if_needed();
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "second_run_builds_nothing_and_needs_no_go", "--nocapture"])
        .env(WITHOUT_GO, "1")
        .env("PATH", "")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{output}{}", String::from_utf8_lossy(&child.stderr));
    assert!(output.contains("1 passed"), "{output}");
}

#[test]
fn removes_leftover_of_killed_build() {
    let built = build_if_needed();
    let cache = tempfile::tempdir().unwrap();
    for program in [built.kubernetes("kube"), built.cluster_api(), built.kwok()] {
        let directory = program.parent().unwrap();
        symlink(directory, cache.path().join(directory.file_name().unwrap())).unwrap();
    }
    let leftover = cache.path().join(".building-kube-0123456789abcdef");
    std::fs::create_dir(&leftover).unwrap();
    Artifacts::ensure_in(cache.path(), &mut |step| panic!("nothing should be built: {step:?}")).unwrap();
    assert!(!leftover.exists());
}

#[test]
fn all_artifacts_exist() {
    let built = build_if_needed();
    for component in ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"] {
        assert!(built.kubernetes(component).is_file(), "{component}");
    }
    assert!(built.cluster_api().is_file() && built.kwok().is_file());
    assert!(built.cluster_api_crds().join("cluster.x-k8s.io_machines.yaml").is_file());
    assert!(built.cluster_api_webhooks().is_file());
    assert_eq!(built.kwok_stages().read_dir().unwrap().count(), 5);
    let promtool = built.promtool(&mut |_| {}).unwrap();
    assert!(promtool.parent().unwrap().join("crds/prometheusrules.yaml").is_file());
}
