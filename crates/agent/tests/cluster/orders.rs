//! What the ConfigMap says, and what becomes of it.

use fivespot_testbed::wait::eventually;

use crate::gate::Gate;
use crate::probe::{is_not_ready, is_ready};
use crate::stage::{SOON, Stage, plane, shared};

#[tokio::test]
async fn other_orders_arm_anew_and_find_what_runs_already() {
    for detector in ["netlink", "poll"] {
        let node = format!("other-{detector}");
        let (first, second) = (format!("{node}-1"), format!("{node}-2"));
        let stage = Stage::new(shared().await, &node).await;
        let _second = stage.start(&second);
        let agent = stage.armed(&format!("match_commands = ['{first}']\n"), &["--detector", detector]).await;
        stage.order(&format!("match_commands = ['{second}']\n")).await;
        let annotations = stage.requested().await;
        assert_eq!(annotations[crate::REASON], format!("process-match: {second}"));
        agent.says_times("\"armed\"", 2).await;
    }
}

#[tokio::test]
async fn without_orders_it_is_inert_until_there_are_some_again() {
    for detector in ["netlink", "poll"] {
        let node = format!("inert-{detector}");
        let stage = Stage::new(shared().await, &node).await;
        let agent = stage.agent(&["--detector", detector]);
        agent.says("nothing to look for").await;
        let orders = format!("match_commands = ['{node}']\n");
        stage.order(&orders).await;
        agent.says("\"armed\"").await;
        stage.withdraw().await;
        agent.says_times("nothing to look for", 2).await;
        let _idea = stage.start(&node);
        stage.order("match_commands = []\n").await;
        stage.order("# nothing\n").await;
        // Had it been looking, there would be a match before it is armed again.
        stage.order(&orders).await;
        stage.requested().await;
        let log = agent.log();
        let at = |text: &str| log.rfind(text).unwrap();
        assert!(at("\"match\"") > at("\"armed\""), "{log}");
        assert_eq!(log.matches("\"match\"").count(), 1, "{log}");
    }
}

#[tokio::test]
async fn orders_that_cannot_be_read_are_told_with_their_place_and_the_last_ones_hold() {
    let stage = Stage::new(shared().await, "bad").await;
    stage.order("match_commands = ['bad-idea',\n  '']\n").await;
    let mut agent = stage.agent(&[]);
    agent.says("line 2, column 3: match_commands[1]").await;
    is_not_ready(&stage, "ConfigMap 5spot-system/reclaim-agent-bad: line 2, column 3").await;
    stage.order("match_commands = ['bad-idea']\n").await;
    agent.says("\"armed\"").await;
    stage.order("match_commands = 7\n").await;
    agent.says("line 1, column 18").await;
    agent.says("\"last_orders_hold\":true").await;
    is_ready(&stage).await;
    let _idea = stage.start("bad-idea");
    stage.requested().await;
    assert!(agent.lives());
}

/// The controller takes the orders away before it clears a request: what still runs must not ask anew.
#[tokio::test]
async fn once_the_orders_are_gone_a_cleared_request_stays_cleared() {
    let stage = Stage::new(shared().await, "finished").await;
    let agent = stage.armed("match_commands = ['finished-idea']\n", &[]).await;
    let _idea = stage.start("finished-idea");
    stage.requested().await;
    agent.says("the request is stored").await;
    stage.withdraw().await;
    agent.says("nothing to look for").await;
    stage.clear().await;
    let before = stage.asked().await;
    // Longer than it takes to look at a stored request.
    tokio::time::sleep(std::time::Duration::from_secs(7)).await;
    assert!(stage.is_not_requested().await);
    assert_eq!(stage.asked().await, before, "nobody looks at it any more");
}

async fn lists(stage: &Stage<'_>) -> usize {
    stage.asked().await.filter(|it| it.verb == "list").len()
}

#[tokio::test]
async fn a_watch_that_ends_goes_on_where_it_was() {
    let stage = Stage::new(shared().await, "ends").await;
    let gate = Gate::before(stage.access.server()).await;
    stage.reach_at(&gate.server());
    let agent = stage.armed("match_commands = ['ends-idea']\n", &[]).await;
    for times in 2..5 {
        gate.cut();
        stage.order(&format!("match_commands = ['ends-idea', 'ends-idea-{times}']\n")).await;
        agent.says_times("\"armed\"", times).await;
    }
    assert!(!agent.log().contains("nothing to look for"), "{}", agent.log());
    let _idea = stage.start("ends-idea-4");
    stage.requested().await;
}

/// A server that was started anew knows nothing of versions before that, and says so: 410 Gone. All is listed again.
#[tokio::test]
async fn a_watch_whose_place_is_forgotten_begins_anew_and_the_orders_hold_meanwhile() {
    let plane = plane("agent-forgotten").await;
    let stage = Stage::new(&plane, "forgotten").await;
    let agent = stage.armed("match_commands = ['forgotten-idea']\n", &[]).await;
    assert_eq!(lists(&stage).await, 1);
    let other = Stage::new(&plane, "forgotten-other").await;
    for text in ["a", "b", "c"] {
        other.order(text).await;
    }
    plane.kill_api_server();
    plane.start_api_server().await.unwrap();
    eventually("it is listed anew", SOON, async || lists(&stage).await >= 2).await;
    stage.order("match_commands = ['forgotten-idea', 'forgotten-idea-2']\n").await;
    agent.says_times("\"armed\"", 2).await;
    let log = agent.log();
    assert!(!log.contains("nothing to look for"), "{log}");
    assert_eq!(log.matches("\"armed\"").count(), 2, "what has not changed is no news: {log}");
    let _idea = stage.start("forgotten-idea-2");
    stage.requested().await;
}
