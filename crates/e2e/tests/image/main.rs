//! The content of the images, as far as it can be tested without a container engine: static binaries without dependencies.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod dns_server;

use std::fs;
use std::path::Path;
use std::process::Command;

use fivespot_e2e::{TIMEOUT, read_repo_file};
use fivespot_testbed::control_plane::ADMIN;
use fivespot_testbed::node::static_program;
use fivespot_testbed::process::Process;
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{ControlPlane, ControlPlaneOptions};

use self::dns_server::{DnsServer, SERVICE};

#[test]
fn dockerfile_uses_the_pinned_toolchain() {
    let toolchain = read_repo_file("rust-toolchain.toml");
    let channel = toolchain.split('"').nth(1).unwrap();
    let from = format!("FROM docker.io/library/rust:{channel}-bookworm@sha256:");
    let dockerfile = read_repo_file("Dockerfile");
    assert!(dockerfile.lines().any(|line| line.starts_with(&from) && line.ends_with(" AS build")), "{dockerfile}");
}

/// The text of a stage of the Dockerfile.
fn stage(name: &str) -> String {
    let dockerfile = read_repo_file("Dockerfile");
    let stage = dockerfile.split("\nFROM ").find(|it| it.lines().next().unwrap().ends_with(&format!(" AS {name}")));
    stage.unwrap_or_else(|| panic!("the Dockerfile has no stage {name}")).to_owned()
}

#[test]
fn users_match_the_manifests() {
    for (name, manifest) in
        [("controller", "deploy/controller/statefulset.yaml"), ("agent", "deploy/node-agent/daemonset.yaml")]
    {
        let manifest = read_repo_file(manifest);
        let user = stage(name).lines().find_map(|it| it.strip_prefix("USER ").map(str::to_owned)).unwrap();
        let (user, group) = user.split_once(':').unwrap();
        for line in [format!("runAsUser: {user}\n"), format!("runAsGroup: {group}\n")] {
            assert!(manifest.contains(&line), "{name}: {line}");
        }
    }
}

#[test]
fn agent_entry_point_matches_its_readiness_probe() {
    let manifest = read_repo_file("deploy/node-agent/daemonset.yaml");
    let stage = stage("agent");
    let program = stage.split("ENTRYPOINT [\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(stage.contains(&format!("COPY --from=build /out{program} {program}\n")), "{stage}");
    assert!(manifest.contains(&format!("command: [\"{program}\", ")), "{manifest}");
}

/// The tests of `real_node` run it in a pod.
#[test]
fn agent_binary_starts_without_other_files() {
    let binary = static_program("5spot-reclaim-agent").unwrap();
    let directory = tempfile::tempdir().unwrap();
    fs::copy(binary, directory.path().join("5spot-reclaim-agent")).unwrap();
    let output = in_chroot(directory.path()).args(["/5spot-reclaim-agent", "--version"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let version = format!("5spot-reclaim-agent {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), version);
}

/// A name in the API server's certificate.
const API_SERVER: &str = "kubernetes.default.svc";

/// Asserts that the controller resolves and reaches the API server in a root directory that contains only its binary, a
/// kubeconfig, and the files in `/etc` that a kubelet adds to every container.
async fn assert_reaches_api_server(case: &str, etc: &[(&str, &str)]) {
    let binary = static_program("5spot").unwrap();
    let options = ControlPlaneOptions::named(case).without_controller_manager().without_scheduler();
    let plane = ControlPlane::start(options).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("etc")).unwrap();
    for (name, text) in etc {
        fs::write(at("etc").join(name), text).unwrap();
    }
    fs::copy(&binary, at("5spot")).unwrap();
    let kubeconfig = fs::read_to_string(plane.kubeconfig_for(ADMIN).unwrap()).unwrap();
    let with_name = kubeconfig.replace("https://127.0.0.1:", &format!("https://{API_SERVER}:"));
    assert_ne!(kubeconfig, with_name);
    fs::write(at("kubeconfig"), with_name).unwrap();

    let mut command = in_chroot(directory.path());
    command.args(["/5spot", "--health-port", "0", "--metrics-port", "0"]).env("KUBECONFIG", "/kubeconfig");
    let mut process = Process::spawn(case, &mut command, &plane.logs()).unwrap();
    // The first requests ask for Cluster API, which is not installed. An authenticated 404 is sufficient.
    eventually("the API server answers a request of the controller", TIMEOUT, async || {
        process.check_alive().unwrap_or_else(|error| panic!("{error}"));
        let requests = plane.audit().entries().filter(|entry| entry.user_agent.starts_with("5spot/"));
        let answered = requests.0.iter().any(|entry| entry.user == ADMIN && matches!(entry.code, 200 | 404));
        if answered { Ok(()) } else { Err(format!("{requests:?}")) }
    })
    .await;
}

/// A command that runs in another root directory, as root or as root of a user namespace.
fn in_chroot(directory: &Path) -> Command {
    if rustix::process::geteuid().is_root() {
        let mut command = Command::new("chroot");
        command.arg(directory);
        command
    } else {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--root"]).arg(directory);
        command
    }
}

#[tokio::test]
async fn controller_binary_needs_no_other_files() {
    assert_reaches_api_server("image-hosts", &[("hosts", &format!("127.0.0.1 {API_SERVER}\n"))]).await;
}

/// The resolver is linked statically; glibc usually loads its parts at run time.
#[tokio::test]
async fn controller_binary_resolves_names_with_dns() {
    let Some(server) = DnsServer::start().await else { return };
    let search = "search default.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5";
    let resolv_conf = format!("nameserver {}\n{search}\n", server.address);
    assert_reaches_api_server("image-dns", &[("hosts", "127.0.0.1 localhost\n"), ("resolv.conf", &resolv_conf)]).await;
    let queries = server.queries.lock().unwrap().clone();
    assert!(queries.iter().any(|name| name == SERVICE), "{queries:?}");
}
