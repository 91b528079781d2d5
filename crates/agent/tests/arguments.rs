//! What the agent says to what it cannot do: exit code 2 and one line that names the thing and the way out.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::process::{Command, Output};

use tempfile::TempDir;

fn agent(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_5spot-reclaim-agent"));
    command.args(arguments).env_remove("NODE_NAME").env_remove("POD_NAMESPACE");
    command
}

fn told(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap().trim_end()
}

#[track_caller]
fn assert_refused(arguments: &[&str], reason: &str) {
    let refused = agent(arguments).output().unwrap();
    let told = told(&refused);
    assert_eq!(refused.status.code(), Some(2), "{told}");
    assert!(refused.stdout.is_empty());
    assert!(told.starts_with("error: ") && told.contains(reason) && told.lines().count() == 1, "{told}");
}

fn file(text: &str) -> (TempDir, String) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("reclaim.toml");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (directory, path)
}

#[test]
fn what_needs_a_cluster_needs_to_know_the_node() {
    let (_directory, path) = file("match_commands = ['java']\n");
    for arguments in [&["--config", &path][..], &["--dry-run"], &["--oneshot"], &[]] {
        assert_refused(arguments, "give --node-name (NODE_NAME), or --config FILE with --dry-run");
    }
    assert_refused(&["--node-name", "A/b"], "--node-name 'A/b': a Node's name has lower-case letters");
}

#[test]
fn a_cluster_that_is_not_there_is_told() {
    for arguments in [&["--oneshot"][..], &["--dry-run"], &["--skip-host-id-check"]] {
        let refused = agent(&["--node-name", "n1"]).args(arguments).env("KUBECONFIG", "/nowhere").output().unwrap();
        let told = told(&refused);
        assert_eq!(refused.status.code(), Some(2), "{told}");
        assert!(told.contains("no cluster to speak to: ") && told.contains("set KUBECONFIG"), "{told}");
    }
}

#[test]
fn a_machine_that_cannot_be_told_from_others_asks_for_nothing() {
    let (_directory, path) = file(" \n");
    let way_out = "or --skip-host-id-check to trust --node-name alone";
    assert_refused(&["--node-name", "n1", "--machine-id-path", "/nowhere"], way_out);
    assert_refused(&["--node-name", "n1", "--machine-id-path", &path], "it is empty; give its path with");
}

#[test]
fn a_probe_without_an_agent_fails_and_says_so() {
    let probe = agent(&["--probe", "--state-dir", "/nowhere"]).output().unwrap();
    assert_eq!(probe.status.code(), Some(1));
    assert!(told(&probe).contains("no agent keeps its state in /nowhere"), "{}", told(&probe));
}

#[test]
fn a_file_that_is_wrong_is_told_with_its_name_and_the_place() {
    let (_directory, path) = file("match_commands = ['java']\npoll_interval_ms = 1\n");
    let place = format!("{path}: line 2, column 20: poll_interval_ms: 1 must be between 10 and 60000");
    assert_refused(&["--config", &path, "--oneshot"], &place);
    assert_refused(&["--config", "/nowhere.toml", "--dry-run"], "--config /nowhere.toml: No such file or directory");
    let (_directory, path) = file("match_comands = ['java']\n");
    assert_refused(&["--config", &path, "--oneshot"], "unknown field `match_comands`");
}

#[test]
fn a_procfs_that_is_none_is_refused() {
    let (directory, path) = file("match_commands = ['java']\n");
    let root = directory.path().to_str().unwrap();
    assert_refused(&["--config", &path, "--oneshot", "--proc-root", root], "is it a mounted procfs?");
    assert_refused(&["--config", &path, "--oneshot", "--proc-root", "/nowhere"], "--proc-root /nowhere: No such file");
}

#[test]
fn a_detector_that_does_not_exist_is_refused() {
    assert_refused(&["--detector", "ebpf"], "[possible values: auto, netlink, poll]");
    let refused = agent(&[]).env("RECLAIM_DETECTOR", "ebpf").output().unwrap();
    assert!(told(&refused).contains("[possible values: auto, netlink, poll]"), "{}", told(&refused));
}

#[test]
fn the_environment_says_the_same_as_the_flags() {
    let (_directory, path) = file("match_commands = ['java']\n");
    let tried = |variable: &str, value: &str| {
        let output = agent(&["--config", &path, "--oneshot"]).env(variable, value).output().unwrap();
        (output.status.code(), told(&output).to_owned())
    };
    assert!(tried("RECLAIM_PROC_ROOT", "/nowhere").1.contains("--proc-root /nowhere"));
    for value in ["true", "false", "1", "0"] {
        assert!(tried("SKIP_HOST_ID_CHECK", value).0 != Some(2), "{value}");
    }
    assert_eq!(tried("SKIP_HOST_ID_CHECK", "perhaps").0, Some(2));
}

#[test]
fn every_flag_and_variable_is_in_the_reference() {
    let help = agent(&["--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let options = help.split("Options:").nth(1).unwrap().split("Exit codes:").next().unwrap();
    let flags = options.lines().filter_map(|it| it.trim().strip_prefix("--")).map(|it| {
        let name = it.split([' ', '=', '[', '<']).next().unwrap();
        format!("`--{name}")
    });
    let variables = help.split("[env: ").skip(1).map(|it| format!("`{}`", it.split(['=', ']']).next().unwrap()));
    let page = include_str!("../../../docs/reference/reclaim-agent.md");
    let names: Vec<String> = flags.chain(variables).collect();
    assert!(names.len() >= 12, "{names:?}");
    let missing: Vec<&String> = names.iter().filter(|it| !page.contains(it.as_str())).collect();
    assert_eq!(missing, Vec::<&String>::new());
}
