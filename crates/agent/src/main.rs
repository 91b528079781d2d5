//! `5spot-reclaim-agent`: runs on a machine that is lent to a cluster, and notices that its owner has started one of
//! their programs.
//!
//! [`matcher`] says which processes count and has no eyes; [`proc`] reads what it is told; [`detect`] says when to look.
//! [`duty`] is the rest: [`orders`] from the cluster say what to look for, and a [`request`] that is to be [`store`]d there
//! says that something was found.

mod backoff;
mod cluster;
mod config;
mod detect;
mod duty;
mod ending;
mod identity;
mod log;
mod lookout;
mod matcher;
mod options;
mod orders;
mod output;
mod post;
mod probe;
mod proc;
mod request;
mod run;
mod store;

use std::process::ExitCode;

use fivespot_cli_support::{finish, parse_args};

use run::Outcome;

/// Of `--oneshot`: something matches.
const MATCHED: u8 = 10;

fn main() -> ExitCode {
    let options = parse_args();
    log::start();
    match run::run(&options) {
        Ok(Outcome::NoMatch) => ExitCode::SUCCESS,
        Ok(Outcome::Match) => ExitCode::from(MATCHED),
        Err(failure) => finish(Err(failure)),
    }
}
