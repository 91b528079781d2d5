//! `5spot-reclaim-agent`: runs on a machine that is lent to a cluster, and notices that its owner has started one of
//! their programs.
//!
//! [`matcher`] says which processes count and has no eyes; [`proc`] reads what it is told; [`detect`] says when to look.

mod config;
mod detect;
mod ending;
mod identity;
mod log;
mod lookout;
mod matcher;
mod options;
mod output;
mod proc;
mod run;

use std::process::ExitCode;

use fivespot_entry::{arguments, finish};

use run::Outcome;

/// Of `--oneshot`: something matches.
const MATCHED: u8 = 10;

fn main() -> ExitCode {
    let options = arguments();
    log::start();
    match run::run(&options) {
        Ok(Outcome::NoMatch) => ExitCode::SUCCESS,
        Ok(Outcome::Match) => ExitCode::from(MATCHED),
        Err(failure) => finish(Err(failure)),
    }
}
