//! What the Dockerfile makes, as far as it can be made without a container engine: a binary that needs nothing else.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod name_server;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fivespot_testbed::control_plane::ADMIN;
use fivespot_testbed::node::static_program;
use fivespot_testbed::process::Process;
use fivespot_testbed::wait::eventually;
use fivespot_testbed::{ControlPlane, ControlPlaneOptions};

use self::name_server::{NameServer, SERVICE};

const SOON: Duration = Duration::from_mins(5);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
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

/// A stage of the Dockerfile, by its name.
fn stage(name: &str) -> String {
    let dockerfile = dockerfile();
    let stage = dockerfile.split("\nFROM ").find(|it| it.lines().next().unwrap().ends_with(&format!(" AS {name}")));
    stage.unwrap_or_else(|| panic!("the Dockerfile has no stage {name}")).to_owned()
}

#[test]
fn their_users_are_those_that_the_manifests_demand() {
    for (name, manifest) in
        [("controller", "deploy/controller/deployment.yaml"), ("agent", "deploy/node-agent/daemonset.yaml")]
    {
        let manifest = fs::read_to_string(root().join(manifest)).unwrap();
        let user = stage(name).lines().find_map(|it| it.strip_prefix("USER ").map(str::to_owned)).unwrap();
        let (user, group) = user.split_once(':').unwrap();
        for line in [format!("runAsUser: {user}\n"), format!("runAsGroup: {group}\n")] {
            assert!(manifest.contains(&line), "{name}: {line}");
        }
    }
}

#[test]
fn the_agents_program_is_where_its_probe_looks_for_it() {
    let manifest = fs::read_to_string(root().join("deploy/node-agent/daemonset.yaml")).unwrap();
    let stage = stage("agent");
    let program = stage.split("ENTRYPOINT [\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(stage.contains(&format!("COPY --from=build /out{program} {program}\n")), "{stage}");
    assert!(manifest.contains(&format!("command: [\"{program}\", ")), "{manifest}");
}

/// What it does inside a pod is tested where there is a kubelet to run it.
#[test]
fn the_agent_needs_nothing_but_itself_to_start() {
    let binary = static_program("5spot-reclaim-agent").unwrap();
    let directory = tempfile::tempdir().unwrap();
    fs::copy(binary, directory.path().join("5spot-reclaim-agent")).unwrap();
    let output = in_root(directory.path()).args(["/5spot-reclaim-agent", "--version"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let version = format!("5spot-reclaim-agent {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), version);
}

/// The name of the API server, which is in its certificate.
const NAME: &str = "kubernetes.default.svc";

/// Lets the binary look for the API server by its name, from a root directory in which it is alone with a kubeconfig and
/// with these files in `etc`, which are what a kubelet puts into every container.
async fn finds_the_api_server(case: &str, etc: &[(&str, &str)]) {
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
    let by_name = kubeconfig.replace("https://127.0.0.1:", &format!("https://{NAME}:"));
    assert_ne!(kubeconfig, by_name);
    fs::write(at("kubeconfig"), by_name).unwrap();

    let mut command = in_root(directory.path());
    command.args(["/5spot", "--health-port", "0", "--metrics-port", "0"]).env("KUBECONFIG", "/kubeconfig");
    let mut process = Process::spawn(case, &mut command, &plane.logs()).unwrap();
    // It has found the API server, and asked it what Cluster API is called there.
    eventually("it talks to the API server", SOON, async || {
        process.check_alive().unwrap_or_else(|error| panic!("{error}"));
        let log = fs::read_to_string(process.log()).unwrap_or_default();
        if log.contains("Cluster API is not installed") { Ok(()) } else { Err(log) }
    })
    .await;
}

/// Runs something with another root directory. Only root may do that, and whoever is root of a user namespace.
fn in_root(directory: &Path) -> Command {
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
async fn the_binary_needs_nothing_but_itself() {
    finds_the_api_server("image-hosts", &[("hosts", &format!("127.0.0.1 {NAME}\n"))]).await;
}

/// The C library's resolver is in the binary too, where others load theirs from a file.
#[tokio::test]
async fn the_binary_asks_a_name_server() {
    let Some(server) = NameServer::start().await else { return };
    let search = "search default.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5";
    let resolv_conf = format!("nameserver {}\n{search}\n", server.address);
    finds_the_api_server("image-dns", &[("hosts", "127.0.0.1 localhost\n"), ("resolv.conf", &resolv_conf)]).await;
    let asked = server.asked.lock().unwrap().clone();
    assert!(asked.iter().any(|it| it == SERVICE), "{asked:?}");
}
