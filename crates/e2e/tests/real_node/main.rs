//! The agent as it is shipped, on a real node: its DaemonSet, in its image, run by a kubelet on this machine. Where there
//! can be no real node, these tests say so and show nothing; with `CI=true` they fail instead.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod daemon_set;
mod identity;
mod process;
mod stage;
mod story;
mod update;
