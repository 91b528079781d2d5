//! `5spot-reclaim-agent` runs on a machine that is lent to a cluster. When the owner of the machine starts one of the
//! configured programs, the agent requests an emergency reclaim: three annotations on the machine's Node, which the controller
//! acts on.
//!
//! # Map
//!
//! One exec event, from the kernel to the Node:
//!
//! 1. [`signals::process::netlink`] receives the event from the kernel in the detector thread. (`--detector poll` scans
//!    periodically instead.)
//! 2. [`signals::process::ArmedScanner`] scans the process: `procfs` reads it, `matcher` compares it with the patterns,
//!    `cgroup` excludes pods, `container_stack` excludes programs that run on behalf of pods.
//! 3. [`signals::MatchSink`] passes the match to the run loop, or prints it in a dry run.
//! 4. [`agent::Agent`], the run loop, hands it to [`reclaim::ReclaimState`], which builds the request (`reclaim::request`) and
//!    has it written (`reclaim::writer`): one PATCH of the Node, retried until it is stored.
//! 5. When the controller has cleared the request, the run loop scans again.
//!
//! The patterns come from `reclaim.toml` ([`config`]) in a ConfigMap ([`config_map`]) or in a file. [`run`] wires everything
//! together. [`signals`] describes how to add another kind of owner signal. [`probe`] answers the readiness probe.

mod agent;
mod backoff;
mod client;
mod config;
mod config_map;
mod error;
mod logging;
mod machine_id;
mod options;
mod probe;
mod reclaim;
mod run;
mod shutdown;
mod signals;

use std::process::ExitCode;

use fivespot_cli_support::{Failure, abort_on_panic, finish, parse_args};

use options::Options;
use run::Outcome;

/// `--oneshot` found a match.
const EXIT_MATCH: u8 = 10;

fn main() -> ExitCode {
    abort_on_panic();
    let options: Options = parse_args();
    if let Err(error) = logging::init() {
        return finish(Err(Failure::bad_input(error.to_string())));
    }
    match run::run(&options) {
        Ok(Outcome::NoMatch) => ExitCode::SUCCESS,
        Ok(Outcome::Match) => ExitCode::from(EXIT_MATCH),
        Err(error) => finish(Err(error.into())),
    }
}
