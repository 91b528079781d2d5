//! The agent on the kernel that the tests run on. They need root, the host's network and pid namespaces, and cgroups that
//! can be written; without those they fail, they are never skipped. Nothing waits for a time: the agent's lines are read.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod agent;
mod pods;

use std::process::Command;

use agent::{Running, Stage, Watch};

const DETECTORS: [&str; 2] = ["netlink", "poll"];

#[test]
fn a_program_that_is_started_is_found() {
    for detector in DETECTORS {
        let stage = Stage::new("match_commands = ['idea-start']\n");
        let watch = stage.watch(detector);
        assert_eq!(watch.detector, detector);
        let idea = stage.start("idea-start");
        let line = watch.expect(idea.0.id(), "idea-start", "comm");
        assert_eq!(line["comm"], "idea-start");
        assert_eq!(watch.stop(), [""; 0], "one process, one line");
    }
}

#[test]
fn a_program_that_runs_already_is_found_at_arming() {
    for detector in DETECTORS {
        let stage = Stage::new("match_commands = ['idea-early']\n");
        let idea = stage.start("idea-early");
        stage.watch(detector).expect(idea.0.id(), "idea-early", "comm");
    }
}

#[test]
fn a_name_that_the_kernel_cuts_is_found_and_its_neighbour_is_not() {
    for detector in DETECTORS {
        let stage = Stage::new("match_commands = ['idea-with-a-long-name', 'idea-last']\n");
        let watch = stage.watch(detector);
        let _neighbour = stage.start("idea-with-a-long-neighbour");
        let idea = stage.start("idea-with-a-long-name");
        let line = watch.expect(idea.0.id(), "idea-with-a-long-name", "comm");
        assert_eq!(line["comm"], "idea-with-a-lon");
        // Had the neighbour been a match, it would stand before this one.
        let last = stage.start("idea-last");
        watch.expect(last.0.id(), "idea-last", "comm");
    }
}

#[test]
fn a_program_that_renames_itself_is_found() {
    for detector in DETECTORS {
        let stage = Stage::new("match_commands = ['idea-renamed']\n");
        let watch = stage.watch(detector);
        let mut shell = Command::new("/bin/sh");
        // Built in, so that the shell itself goes on under its new name.
        shell.args(["-c", "n=idea; echo $n-renamed > /proc/$$/comm; read line"]).stdin(std::process::Stdio::piped());
        let shell = Running(shell.spawn().unwrap());
        watch.expect(shell.0.id(), "idea-renamed", "comm");
    }
}

#[test]
fn a_part_of_the_arguments_is_found() {
    for detector in DETECTORS {
        let stage = Stage::new("match_argv_substrings = ['-jar idea-argument.jar']\n");
        let watch = stage.watch(detector);
        let script = "read line";
        let mut java = Command::new("/bin/sh");
        java.args(["-c", script, "-jar", "idea-argument.jar"]).stdin(std::process::Stdio::piped());
        let java = Running(java.spawn().unwrap());
        watch.expect(java.0.id(), "-jar idea-argument.jar", "cmdline");
    }
}

#[test]
fn several_at_once_are_all_found_once_each() {
    for detector in DETECTORS {
        let stage = Stage::new("match_commands = ['idea-many']\n");
        let watch = stage.watch(detector);
        let program = stage.program("idea-many");
        let many: Vec<Running> = (0..20).map(|_| Running(Command::new(&program).arg("600").spawn().unwrap())).collect();
        let mut started: Vec<u64> = many.iter().map(|it| it.0.id().into()).collect();
        let mut found: Vec<u64> = many.iter().map(|_| watch.line()["pid"].as_u64().unwrap()).collect();
        started.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, started);
        assert_eq!(watch.stop(), [""; 0]);
    }
}

#[test]
fn the_agent_does_not_match_itself() {
    for detector in DETECTORS {
        // Other tests' agents must not match, so this one has a name of its own.
        let stage = Stage::new("match_commands = ['idea-self']\nmatch_argv_substrings = ['5spot-itself --config']\n");
        let itself = stage.path("5spot-itself");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_5spot-reclaim-agent"), &itself).unwrap();
        let mut command = Command::new(itself);
        command.args(stage.agent(&["--dry-run", "--detector", detector]).get_args());
        let watch = Watch::start(command);
        let idea = stage.start("idea-self");
        watch.expect(idea.0.id(), "idea-self", "comm");
        assert_eq!(watch.stop(), [""; 0]);
    }
}

#[test]
fn in_another_network_namespace_the_kernel_tells_nothing_and_auto_polls() {
    let stage = Stage::new("match_commands = ['idea-netns']\npoll_interval_ms = 20\n");
    let elsewhere = |arguments: &[&str]| {
        let agent = stage.agent(arguments);
        let mut command = Command::new("unshare");
        command.arg("-n").arg(agent.get_program()).args(agent.get_args());
        command
    };
    let refused = elsewhere(&["--dry-run", "--detector", "netlink"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(refused.stdout.is_empty(), "it was never armed");
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(told.contains("error: --detector netlink: ") && told.contains("hostNetwork: true"), "{told}");

    let log = std::fs::File::create(stage.path("log")).unwrap();
    let mut command = elsewhere(&["--dry-run"]);
    command.stderr(log);
    let watch = Watch::start(command);
    assert_eq!(watch.detector, "poll");
    let log = std::fs::read_to_string(stage.path("log")).unwrap();
    assert!(log.contains("polling instead") && log.contains("hostNetwork: true"), "{log}");
    let idea = stage.start("idea-netns");
    watch.expect(idea.0.id(), "idea-netns", "comm");
}

#[test]
fn in_the_hosts_namespaces_auto_is_the_kernel() {
    assert_eq!(Stage::new("").watch("auto").detector, "netlink");
}

#[test]
fn one_look_ends_with_what_it_has_seen() {
    let stage = Stage::new("match_commands = ['idea-oneshot']\n");
    let nothing = stage.oneshot();
    assert_eq!((nothing.status.code(), nothing.stdout.len()), (Some(0), 0));
    let idea = stage.start("idea-oneshot");
    let something = stage.oneshot();
    assert_eq!(something.status.code(), Some(10));
    let line: serde_json::Value = serde_json::from_slice(&something.stdout).unwrap();
    assert_eq!((&line["event"], &line["pid"]), (&"match".into(), &idea.0.id().into()));
    let inert = Stage::new("match_commands = []\n");
    assert_eq!(inert.oneshot().status.code(), Some(0));
}
