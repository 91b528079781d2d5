//! The programs are built once, and found without Go.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic, also in what it calls")]

use std::env;
use std::os::unix::fs::symlink;
use std::process::Command;

use fivespot_testbed::artifacts::{Artifacts, ProgressPrinter};

/// Set in a child of this test binary that must get along without Go.
const WITHOUT_GO: &str = "FIVESPOT_TEST_WITHOUT_GO";

fn build_if_needed() -> Artifacts {
    let mut printer = ProgressPrinter::new();
    let built = Artifacts::ensure(&mut |step| printer.show(&step)).expect("the programs can be built here");
    built.helm(&mut |step| printer.show(&step)).expect("Helm can be built here");
    built.promtool(&mut |step| printer.show(&step)).expect("promtool can be built here");
    built
}

#[test]
fn a_second_run_builds_nothing_and_needs_no_go() {
    if env::var_os(WITHOUT_GO).is_some() {
        let mut nothing = |step| panic!("nothing should be built: {step:?}");
        let built = Artifacts::ensure(&mut nothing).unwrap();
        built.helm(&mut nothing).unwrap();
        built.promtool(&mut nothing).unwrap();
        return;
    }
    build_if_needed();
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "a_second_run_builds_nothing_and_needs_no_go", "--nocapture"])
        .env(WITHOUT_GO, "1")
        .env("PATH", "")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{output}{}", String::from_utf8_lossy(&child.stderr));
    assert!(output.contains("1 passed"), "{output}");
}

#[test]
fn what_a_killed_build_left_is_swept() {
    let built = build_if_needed();
    let cache = tempfile::tempdir().unwrap();
    for program in [built.kubernetes("kube"), built.cluster_api(), built.kwok()] {
        let directory = program.parent().unwrap();
        symlink(directory, cache.path().join(directory.file_name().unwrap())).unwrap();
    }
    let left = cache.path().join(".building-kube-0123456789abcdef");
    std::fs::create_dir(&left).unwrap();
    Artifacts::ensure_in(cache.path(), &mut |step| panic!("nothing should be built: {step:?}")).unwrap();
    assert!(!left.exists());
}

#[test]
fn everything_a_run_reads_is_there() {
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
