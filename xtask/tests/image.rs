//! What the Dockerfile makes, as far as it can be made without a container engine: a binary that needs nothing else.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use fivespot_testbed::control_plane::ADMIN;
use fivespot_testbed::process::Process;
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{ControlPlane, ControlPlaneOptions};

const SOON: Duration = Duration::from_mins(5);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn dockerfile() -> String {
    fs::read_to_string(root().join("Dockerfile")).unwrap()
}

/// What follows the first of these words in the Dockerfile, up to the end of its line.
fn told(word: &str) -> String {
    let dockerfile = dockerfile();
    let (_, rest) = dockerfile.split_once(word).unwrap_or_else(|| panic!("the Dockerfile has no {word:?}"));
    rest.lines().next().unwrap().to_owned()
}

#[test]
fn its_compiler_is_the_one_that_the_tests_have() {
    let toolchain = fs::read_to_string(root().join("rust-toolchain.toml")).unwrap();
    let channel = toolchain.split('"').nth(1).unwrap();
    assert_eq!(told("FROM docker.io/library/rust:"), format!("{channel}-bookworm AS build"));
}

#[test]
fn its_user_is_the_one_that_the_deployment_demands() {
    let deployment = fs::read_to_string(root().join("deploy/controller/deployment.yaml")).unwrap();
    let user = told("USER ");
    let (user, group) = user.split_once(':').unwrap();
    for line in [format!("runAsUser: {user}"), format!("runAsGroup: {group}")] {
        assert!(deployment.contains(&line), "{line}");
    }
}

/// Builds the controller as the Dockerfile does, except for how much it is optimised.
fn build() -> PathBuf {
    let flags = told("RUSTFLAGS=\"");
    let flags = flags.split(" --remap").next().unwrap();
    let version = Command::new("rustc").arg("-vV").output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    let host = version.lines().find_map(|it| it.strip_prefix("host: ")).unwrap();
    let target = root().join("target/static");
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "--bin", "5spot", "--target", host, "--target-dir"])
        .arg(&target)
        .current_dir(root())
        .env("RUSTFLAGS", flags)
        .status()
        .unwrap();
    assert!(status.success());
    target.join(host).join("debug/5spot")
}

#[tokio::test]
async fn the_binary_needs_nothing_but_itself() {
    let binary = build();
    let plane =
        ControlPlane::start(ControlPlaneOptions::named("image").without_controller_manager().without_scheduler())
            .await
            .unwrap();
    // A root directory with the binary, a kubeconfig, and what a kubelet puts into every container.
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("etc")).unwrap();
    fs::write(at("etc/hosts"), "127.0.0.1 kubernetes.default.svc\n").unwrap();
    fs::copy(&binary, at("5spot")).unwrap();
    let kubeconfig = fs::read_to_string(plane.kubeconfig_for(ADMIN).unwrap()).unwrap();
    let by_name = kubeconfig.replace("https://127.0.0.1:", "https://kubernetes.default.svc:");
    assert_ne!(kubeconfig, by_name);
    fs::write(at("kubeconfig"), by_name).unwrap();

    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--root"]).arg(directory.path());
    command.args(["/5spot", "--health-port", "0", "--metrics-port", "0"]).env("KUBECONFIG", "/kubeconfig");
    let process = Process::spawn("static", &mut command, &plane.logs()).unwrap();
    // It has found the API server by its name, and asked it what Cluster API is called there.
    eventually("it talks to the API server", SOON, async || {
        let log = fs::read_to_string(process.log()).unwrap_or_default();
        if log.contains("Cluster API is not installed") { Ok(()) } else { Err(log) }
    })
    .await;
}
