//! The command line: invalid usage ends with exit code 2 and one line that names the problem and the remedy.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod fixtures;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

fn agent(arguments: &[&str]) -> Command {
    let mut command = fixtures::agent_command();
    command.args(arguments);
    command
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap().trim_end()
}

#[track_caller]
fn assert_usage_error(arguments: &[&str], expected: &str) {
    let output = agent(arguments).output().unwrap();
    let stderr = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(output.stdout.is_empty());
    assert!(stderr.starts_with("error: ") && stderr.contains(expected) && stderr.lines().count() == 1, "{stderr}");
}

fn write_config(text: &str) -> (TempDir, String) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("reclaim.toml");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (directory, path)
}

#[test]
fn node_name_is_required_with_a_cluster() {
    let (_directory, path) = write_config("match_commands = ['java']\n");
    for arguments in [&["--config", &path][..], &["--dry-run"], &["--oneshot"], &[]] {
        assert_usage_error(arguments, "set --node-name (NODE_NAME), or use --config FILE with --dry-run");
    }
    assert_usage_error(&["--node-name", "A/b"], "invalid --node-name \"A/b\": a Node name consists of lower-case");
}

#[test]
fn missing_cluster_is_a_usage_error() {
    for arguments in [&["--oneshot"][..], &["--dry-run"], &["--skip-host-id-check"]] {
        let output = agent(&["--node-name", "n1"]).args(arguments).env("KUBECONFIG", "/nowhere").output().unwrap();
        let stderr = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("cannot find a cluster: ") && stderr.contains("set KUBECONFIG"), "{stderr}");
    }
}

#[test]
fn unreadable_machine_id_is_a_usage_error() {
    let (_directory, empty_file) = write_config(" \n");
    let remedy = "set --machine-id-path, or --skip-host-id-check to trust --node-name alone";
    assert_usage_error(&["--node-name", "n1", "--machine-id-path", "/nowhere"], remedy);
    assert_usage_error(&["--node-name", "n1", "--machine-id-path", &empty_file], "the file is empty; set --machine-id");
}

#[test]
fn probe_without_agent_fails() {
    let probe = agent(&["--probe", "--state-dir", "/nowhere"]).output().unwrap();
    assert_eq!(probe.status.code(), Some(1));
    assert!(stderr(&probe).contains("no agent keeps its state in /nowhere"), "{}", stderr(&probe));
}

#[test]
fn invalid_config_file_is_reported_with_position() {
    let (_directory, path) = write_config("match_commands = ['java']\npoll_interval_ms = 1\n");
    let expected = format!("{path}: line 2, column 20: poll_interval_ms: 1 must be between 10 and 5000");
    assert_usage_error(&["--config", &path, "--oneshot"], &expected);
    assert_usage_error(
        &["--config", "/nowhere.toml", "--dry-run"],
        "--config /nowhere.toml: No such file or directory",
    );
    let (_directory, path) = write_config(&"#".repeat(600 << 10));
    assert_usage_error(&["--config", &path, "--oneshot"], "the configuration must have at most 524288 bytes");
    assert_usage_error(&["--config", "/dev/zero", "--oneshot"], "the configuration must have at most 524288 bytes");
    let (_directory, path) = write_config("match_comands = ['java']\n");
    assert_usage_error(&["--config", &path, "--oneshot"], "unknown field `match_comands`");
}

#[test]
fn directory_without_processes_is_not_a_procfs() {
    let (directory, path) = write_config("match_commands = ['java']\n");
    let root = directory.path().to_str().unwrap();
    assert_usage_error(&["--config", &path, "--oneshot", "--proc-root", root], "is it a mounted procfs?");
    let missing = "--proc-root /nowhere: No such file";
    assert_usage_error(&["--config", &path, "--oneshot", "--proc-root", "/nowhere"], missing);
}

#[test]
fn unknown_detector_is_a_usage_error() {
    assert_usage_error(&["--detector", "ebpf"], "[possible values: auto, netlink, poll]");
    let output = agent(&[]).env("RECLAIM_DETECTOR", "ebpf").output().unwrap();
    assert!(stderr(&output).contains("[possible values: auto, netlink, poll]"), "{}", stderr(&output));
}

#[test]
fn invalid_poll_interval_is_a_usage_error() {
    for value in ["9ms", "6s", "-1s", "0s", "1h"] {
        let argument = format!("--poll-interval={value}");
        assert_usage_error(&[&argument, "--oneshot"], "it must be between 10ms and 5000ms");
    }
    assert_usage_error(&["--poll-interval", "250", "--oneshot"], "write it like 500ms or 2s");
    let output = agent(&["--oneshot"]).env("RECLAIM_POLL_INTERVAL", "never").output().unwrap();
    assert!(stderr(&output).contains("write it like 500ms or 2s"), "{}", stderr(&output));
}

#[test]
fn poll_interval_without_polling_is_a_usage_error() {
    let (_directory, path) = write_config("match_commands = ['java']\n");
    for arguments in [&["--config", &path, "--dry-run"][..], &["--node-name", "n1"]] {
        let arguments = [&["--detector", "netlink", "--poll-interval", "1s"][..], arguments].concat();
        assert_usage_error(&arguments, "has no effect with --detector netlink");
    }
    // The probe has the environment of the agent.
    let mut probe = agent(&["--probe", "--state-dir", "/nowhere"]);
    let probe = probe.env("RECLAIM_POLL_INTERVAL", "1s").env("RECLAIM_DETECTOR", "auto").output().unwrap();
    assert_eq!(probe.status.code(), Some(1), "{}", stderr(&probe));
}

#[test]
fn environment_variables_set_the_flags() {
    let (_directory, path) = write_config("match_commands = ['java']\n");
    let run = |variable: &str, value: &str| {
        let output = agent(&["--config", &path, "--oneshot"]).env(variable, value).output().unwrap();
        (output.status.code(), stderr(&output).to_owned())
    };
    assert!(run("RECLAIM_PROC_ROOT", "/nowhere").1.contains("--proc-root /nowhere"));
    for value in ["true", "false", "1", "0"] {
        assert!(run("SKIP_HOST_ID_CHECK", value).0 != Some(2), "{value}");
    }
    assert_eq!(run("SKIP_HOST_ID_CHECK", "perhaps").0, Some(2));
}

/// An API server that responds to every request with an invalid body, which `kube_client` logs as a warning.
fn start_broken_api_server(directory: &TempDir) -> PathBuf {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let request = BufReader::new(stream.try_clone().unwrap());
            assert!(request.lines().map_while(Result::ok).any(|line| line.is_empty()));
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\noops").unwrap();
        }
    });
    write_kubeconfig(directory, &server)
}

fn write_kubeconfig(directory: &TempDir, server: &str) -> PathBuf {
    let kubeconfig = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        "clusters": [{ "name": "c", "cluster": { "server": server } }],
        "users": [{ "name": "u", "user": {} }],
    });
    let path = directory.path().join("kubeconfig");
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    path
}

/// Not what an API server sends, but a proxy or another server at its address may. The agent must not run out of memory.
#[test]
fn response_body_is_read_up_to_a_limit() {
    const ENOUGH: usize = 256 << 20;
    let (directory, config) = write_config("match_commands = ['cli-no-such-program']\n");
    // The first request reads the Node, the watch of the ConfigMap or the ConfigMap.
    for arguments in [&["--config", &config][..], &[], &["--oneshot"]] {
        // A listener of its own: the agent before may have left a connection without a request.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let kubeconfig = write_kubeconfig(&directory, &format!("http://{}", listener.local_addr().unwrap()));
        let mut command = agent(&["--node-name", "n1", "--detector", "poll", "--machine-id-path", &config]);
        command.args(arguments).arg("--state-dir").arg(directory.path()).env("KUBECONFIG", &kubeconfig);
        let _agent = fixtures::ChildProcess(command.stderr(Stdio::null()).spawn().unwrap());
        let (mut stream, _) = listener.accept().unwrap();
        let request = BufReader::new(stream.try_clone().unwrap());
        assert!(request.lines().map_while(Result::ok).any(|line| line.is_empty()));
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n").unwrap();
        let chunk = vec![b' '; 1 << 20];
        let written = (0..ENOUGH / chunk.len()).take_while(|_| stream.write_all(&chunk).is_ok()).count();
        assert!(written < ENOUGH / chunk.len(), "{arguments:?}: the agent has read {written} MiB");
    }
}

#[test]
fn rust_log_selects_targets_and_levels() {
    let directory = TempDir::new().unwrap();
    let kubeconfig = start_broken_api_server(&directory);
    let logged = |rust_log: Option<&str>| -> Vec<String> {
        let mut command = agent(&["--node-name", "n1", "--oneshot"]);
        command.env("KUBECONFIG", &kubeconfig).envs(rust_log.map(|filter| ("RUST_LOG", filter)));
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let lines = stderr(&output).lines().filter(|line| !line.starts_with("error: "));
        let lines = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.map(|line| format!("{} {}", line["level"].as_str().unwrap(), line["target"].as_str().unwrap())).collect()
    };
    let none = Vec::<String>::new();
    assert_eq!(logged(None), none, "libraries log errors only");
    assert_eq!(logged(Some("")), none);
    assert_eq!(logged(Some("kube_client=warn")), ["WARN kube_client::client"]);
    assert_eq!(logged(Some("5spot_reclaim_agent=debug")), ["DEBUG 5spot_reclaim_agent::run"]);
    let debug = logged(Some("debug"));
    for expected in ["DEBUG 5spot_reclaim_agent::run", "WARN kube_client::client"] {
        assert!(debug.iter().any(|line| line == expected), "{debug:?}");
    }
    assert_eq!(logged(Some("off")), none);
}

#[test]
fn invalid_rust_log_is_a_usage_error() {
    let output = agent(&["--oneshot"]).env("RUST_LOG", "kube_client=loud").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).starts_with("error: cannot parse RUST_LOG \"kube_client=loud\": "), "{}", stderr(&output));
}

#[test]
fn reference_page_lists_every_flag_and_variable() {
    let help = agent(&["--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let options = help.split("Options:").nth(1).unwrap().split("Exit codes:").next().unwrap();
    let flags = options.lines().filter_map(|line| line.trim().strip_prefix("--")).map(|line| {
        let name = line.split([' ', '=', '[', '<']).next().unwrap();
        format!("`--{name}")
    });
    let variables = help.split("[env: ").skip(1).map(|it| format!("`{}`", it.split(['=', ']']).next().unwrap()));
    let page = include_str!("../../../docs/reference/reclaim-agent.md");
    let names: Vec<String> = flags.chain(variables).collect();
    assert!(names.len() >= 12, "{names:?}");
    let missing: Vec<&String> = names.iter().filter(|name| !page.contains(name.as_str())).collect();
    assert_eq!(missing, Vec::<&String>::new());
}
