//! The agent with a real API server, the shipped account, permissions and policy, and a token that names its Node, as
//! the kubelet issues it to a pod. Like the kernel tests, these tests need root.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod agent_config;
mod env;
#[path = "../fixtures/mod.rs"]
mod fixtures;
mod outage;
mod probe;
mod reclaim;
mod rejections;
mod scope;
mod tcp_proxy;
mod token_rotation;
