//! The shipped agent on a real node: its DaemonSet and image, run by a kubelet on this machine. Skipped where a real node
//! cannot run; with `CI=true` the tests fail instead.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod container_stack;
mod daemon_set;
mod end_to_end;
mod env;
mod identity;
mod process;
mod update;
