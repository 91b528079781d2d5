//! From the arguments to the end: look once, or look until told to stop.

use std::fs;

use fivespot_entry::Failure;
use jiff::Timestamp;
use tracing::{info, warn};

use crate::config::Config;
use crate::detect::{Detector, Ended, Hint};
use crate::lookout::{Found, Lookout};
use crate::options::Options;
use crate::output::Line;
use crate::proc::Proc;
use crate::{ending, identity};

/// What one look has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    NoMatch,
    Match,
}

/// Does what the arguments ask for.
pub(crate) fn run(options: &Options) -> Result<Outcome, Failure> {
    let config = read_config(options)?;
    if !options.oneshot && !options.dry_run {
        return Err(Failure::bad_input(
            "this release cannot write to a cluster: add --dry-run to be told of matches, or --oneshot to look once",
        ));
    }
    let proc = open_proc(options)?;
    let lookout = Lookout::new(config.patterns.clone(), proc);
    if options.oneshot { look_once(lookout) } else { look_on(options, &config, lookout) }
}

fn read_config(options: &Options) -> Result<Config, Failure> {
    let Some(path) = &options.config else {
        let node = options.node_name.as_deref().map(|it| format!(" of Node '{it}'")).unwrap_or_default();
        return Err(Failure::bad_input(format!(
            "this release cannot read the ConfigMap{node} from a cluster: say what to look for with --config FILE"
        )));
    };
    let shown = path.display();
    let text = fs::read_to_string(path).map_err(|it| Failure::bad_input(format!("--config {shown}: {it}")))?;
    Config::parse(&text).map_err(|it| Failure::bad_input(format!("{shown}: {it}")))
}

/// A procfs without a process is not mounted, and would never show a match.
fn open_proc(options: &Options) -> Result<Proc, Failure> {
    let shown = options.proc_root.display();
    let proc = Proc::at(&options.proc_root);
    match proc.pids() {
        Ok(pids) if pids.is_empty() => {
            Err(Failure::bad_input(format!("--proc-root {shown}: there is no process in it; is it a mounted procfs?")))
        }
        Ok(_) => Ok(proc),
        Err(error) => Err(Failure::bad_input(format!("--proc-root {shown}: {error}"))),
    }
}

fn look_once(mut lookout: Lookout) -> Result<Outcome, Failure> {
    let found = look_and_tell(&mut lookout, Hint::All)?;
    Ok(if found.is_empty() { Outcome::NoMatch } else { Outcome::Match })
}

fn look_on(options: &Options, config: &Config, mut lookout: Lookout) -> Result<Outcome, Failure> {
    say_who_we_are(options);
    if config.patterns.is_empty() {
        warn!("there is nothing to look for: nothing will ever match");
    }
    let detector = Detector::arm(options.detector, config.poll_interval)
        .map_err(|it| Failure::failed("--detector netlink", &it))?;
    let farewell = detector.farewell().map_err(|it| Failure::failed("the proc connector", &it))?;
    ending::at_a_signal(farewell).map_err(|it| Failure::failed("waiting for signals", &it))?;
    info!(detector = detector.name(), "armed");
    Line::Armed { detector: detector.name() }.write().map_err(|it| Failure::failed("standard output", &it))?;
    match detector.run(|hint| look_and_tell(&mut lookout, hint).map(drop)) {
        Ok(never) => match never {},
        Err(Ended::Looking(failure)) => Err(failure),
        Err(Ended::Detector(refused)) => Err(Failure::failed("the detector has ended", &refused)),
    }
}

/// What would be compared before anything is written to a Node.
fn say_who_we_are(options: &Options) {
    let node = options.node_name.as_deref().unwrap_or_default();
    if options.skip_host_id_check {
        info!(node, "the machine's identity is not looked at");
        return;
    }
    match identity::read(&options.machine_id_path) {
        Ok(machine_id) => info!(node, machine_id, "this machine"),
        Err(error) => warn!(node, %error, "this machine cannot be told from others, so nothing may be written for it"),
    }
}

fn look_and_tell(lookout: &mut Lookout, hint: Hint) -> Result<Vec<Found>, Failure> {
    let found = lookout.look(hint).map_err(|it| Failure::failed("the list of processes", &it))?;
    for it in &found {
        Line::of(it, Timestamp::now()).write().map_err(|it| Failure::failed("standard output", &it))?;
    }
    Ok(found)
}
