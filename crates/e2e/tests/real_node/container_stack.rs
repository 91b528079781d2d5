//! Programs that the kubelet and the container runtime start for pods, with names that a pod's author chooses.

use fivespot_testbed::RealNode;

use crate::env::AgentEnv;
use crate::process::Program;

/// The kubelet runs `mount` and `umount` for each of these volumes, with the volume's name in the arguments.
#[tokio::test(flavor = "multi_thread")]
async fn mounts_of_pod_volumes_do_not_match() {
    if !RealNode::is_possible() {
        return;
    }
    let env = AgentEnv::start("real-node-volumes").await;
    // Unique, because the agent reads the command lines of all processes of this machine.
    let program = format!("idea-{:x}", std::process::id());
    env.configure_agent_for_arguments(&program).await;
    env.label_node("enabled").await;
    env.await_armed().await;
    let agent = env.await_agent().await;

    env.run_pod_with_volumes(&program).await;
    // A program of the owner that only looks like one of the container stack.
    let lookalike = Program::start_as_root("conmon", &["-n", &program]);
    // A match of an earlier process would be the first one.
    let found = env.await_match(&agent).await;
    assert_eq!((&found["pid"], &found["comm"]), (&lookalike.pid().into(), &"conmon".into()), "{found}");
    env.await_reclaim_request(&program).await;
    env.stop().await;
}
