//! The mount option `hidepid` of procfs.

use std::process::{Command, Output};

use crate::env::TestEnv;

/// Mounts a procfs with the given options in a mount namespace of its own, and runs the agent as the DaemonSet does: as root,
/// without `CAP_SYS_PTRACE`.
fn oneshot_with(env: &TestEnv, options: &str) -> Output {
    const SCRIPT: &str =
        "mount -t proc -o \"$0\" proc \"$1\"; shift; exec setpriv --bounding-set -sys_ptrace -- \"$@\"";
    let root = env.path("proc");
    std::fs::create_dir_all(&root).unwrap();
    let agent = env.command(&["--oneshot", "--proc-root", root.to_str().unwrap()]);
    let mut command = Command::new("unshare");
    command.args(["-m", "/bin/sh", "-ec", SCRIPT, options]).arg(&root);
    command.arg(agent.get_program()).args(agent.get_args()).output().unwrap()
}

#[test]
fn hidden_processes_are_an_error_at_startup() {
    let env = TestEnv::new("match_commands = ['idea-hidden']\n");
    let _idea = env.start_program("idea-hidden");
    for options in ["hidepid=2,gid=4242", "hidepid=1,gid=4242", "hidepid=4"] {
        let hidden = oneshot_with(&env, options);
        let error = String::from_utf8(hidden.stderr).unwrap();
        assert_eq!(hidden.status.code(), Some(2), "{options}: {error}");
        assert!(error.contains("hides the processes of other users from the agent"), "{options}: {error}");
    }
    // Group 0, which is the default, may see all processes, and the agent is in it.
    for options in ["hidepid=2", "hidepid=0"] {
        assert_eq!(oneshot_with(&env, options).status.code(), Some(10), "{options}");
    }
}
