//! From the arguments to the end: look once, look alone, or do one's duty in a cluster.

use std::fs;
use std::sync::Arc;
use std::thread;

use fivespot_cli_support::Failure;
use futures::StreamExt as _;
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tracing::{info, warn};

use crate::cluster::Cluster;
use crate::config::Config;
use crate::detect::{Detector, Ended, Hint};
use crate::duty::{Duty, Ears, Parts};
use crate::lookout::Lookout;
use crate::matcher::Patterns;
use crate::options::Options;
use crate::orders::Place;
use crate::output::Line;
use crate::post::{Post, Voice};
use crate::probe::{self, Answers};
use crate::proc::Proc;
use crate::request::Target;
use crate::store::Store;
use crate::{ending, identity};

/// What one look has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    NoMatch,
    Match,
}

/// Does what the arguments ask for.
pub(crate) fn run(options: &Options) -> Result<Outcome, Failure> {
    if options.probe {
        return probe::ask(&options.state_dir, &Proc::at(&options.proc_root)).map(|()| Outcome::NoMatch);
    }
    let config = options.config.as_ref().map(|_| read_config(options)).transpose()?;
    let proc = open_proc(options)?;
    match config {
        Some(config) if options.oneshot => look_once(config, proc),
        None if options.oneshot => look_once(in_a_runtime(ordered_now(options))?, proc),
        Some(config) if options.dry_run => look_on(options, &config, proc),
        config => in_a_runtime(serve(options, config, proc)),
    }
}

/// One thread for all that has to do with the cluster.
fn in_a_runtime<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|it| Failure::failed("cannot start", &it))?.block_on(work)
}

fn read_config(options: &Options) -> Result<Config, Failure> {
    let path = options.config.clone().unwrap_or_default();
    let shown = path.display();
    let text = fs::read_to_string(&path).map_err(|it| Failure::bad_input(format!("--config {shown}: {it}")))?;
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

fn look_once(config: Config, proc: Proc) -> Result<Outcome, Failure> {
    let seen = Lookout::new(config.patterns, proc).look(Hint::All);
    let found = seen.map_err(|it| Failure::failed("the list of processes", &it))?.matches;
    for it in &found {
        Line::of(it, Timestamp::now()).write().map_err(|it| Failure::failed("standard output", &it))?;
    }
    Ok(if found.is_empty() { Outcome::NoMatch } else { Outcome::Match })
}

/// Without a cluster.
fn look_on(options: &Options, config: &Config, proc: Proc) -> Result<Outcome, Failure> {
    say_who_we_are(options);
    if config.patterns.is_empty() {
        warn!("there is nothing to look for: nothing will ever match");
    }
    let detector = arm(options, || ())?;
    info!(detector = detector.name(), "armed");
    Line::Armed { detector: detector.name() }.write().map_err(|it| Failure::failed("standard output", &it))?;
    let post = Post::new(Lookout::new(Patterns::default(), proc), Voice::Lines, None);
    post.arm(config)?;
    Err(detect(detector, &post))
}

/// A detector that is proven to work. At a signal it is let go, and this is done last.
fn arm(options: &Options, last_act: impl FnOnce() + Send + 'static) -> Result<Detector, Failure> {
    let detector = Detector::arm(options.detector).map_err(|it| Failure::failed("--detector netlink", &it))?;
    let farewell = detector.farewell().map_err(|it| Failure::failed("the proc connector", &it))?;
    let ending = ending::at_a_signal(move || {
        farewell();
        last_act();
    });
    ending.map_err(|it| Failure::failed("waiting for signals", &it))?;
    Ok(detector)
}

/// Looks until that fails.
fn detect(detector: Detector, post: &Post) -> Failure {
    match detector.run(|hint| post.look(hint), || post.rest()) {
        Ok(never) => match never {},
        Err(Ended::Looking(failure)) => failure,
        Err(Ended::Detector(refused)) => Failure::failed("the detector has ended", &refused),
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

/// The Node's name, where there is no doing without it.
fn node_name(options: &Options) -> Result<String, Failure> {
    let name = options.node_name.clone().unwrap_or_default();
    if name.is_empty() {
        let way_out = "give --node-name (NODE_NAME), or --config FILE with --dry-run to work without a cluster";
        return Err(Failure::bad_input(format!("which Node this machine is has to be said: {way_out}")));
    }
    if name.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || matches!(it, '-' | '.')) {
        return Ok(name);
    }
    Err(Failure::bad_input(format!("--node-name '{name}': a Node's name has lower-case letters, digits, '-' and '.'")))
}

/// What the ConfigMap says now.
async fn ordered_now(options: &Options) -> Result<Config, Failure> {
    let place = Place::of_node(&node_name(options)?, &options.agent_namespace);
    let client = Cluster::infer().await?.client().map_err(|it| Failure::failed("cannot make a client", &it))?;
    let text = place.read(&client).await.map_err(|it| Failure::failed(place.to_string(), &it))?;
    if text.is_none() {
        warn!(what = place.to_string(), "it is not there: nothing to look for");
    }
    let parsed = text.as_deref().map(Config::parse).transpose();
    Ok(parsed.map_err(|it| Failure::bad_input(format!("{place}: {it}")))?.unwrap_or_else(Config::nothing))
}

/// With a cluster: the orders come from there unless there is a file, and requests go there unless it is a dry run.
async fn serve(options: &Options, file: Option<Config>, proc: Proc) -> Result<Outcome, Failure> {
    let node = node_name(options)?;
    let place = Place::of_node(&node, &options.agent_namespace);
    let machine_id = machine_id(options)?;
    let cluster = Cluster::infer().await?;
    let client = cluster.client().map_err(|it| Failure::failed("cannot make a client", &it))?;
    say_who_we_are(options);

    let answers = if options.dry_run { None } else { answers(options, &proc) };
    let last_words = answers.clone();
    let detector = arm(options, move || {
        if let Some(answers) = last_words {
            answers.not_armed("it has been stopped");
        }
    })?;
    let (requests, found) = mpsc::unbounded_channel();
    let voice = if options.dry_run { Voice::Lines } else { Voice::Requests(requests) };
    let post = Arc::new(Post::new(Lookout::new(Patterns::default(), proc), voice, answers.clone()));
    let target = Target { node: node.clone(), machine_id };
    let mut duty = Duty::new(Parts {
        post: Arc::clone(&post),
        node,
        source: options.config.as_ref().map_or_else(|| place.to_string(), |it| it.display().to_string()),
        detector: detector.name(),
        polls: matches!(detector, Detector::Poll),
        store: (!options.dry_run).then(|| Store { cluster, client: client.clone(), target }),
        answers,
    });
    let (end, ended) = oneshot::channel();
    let listening = thread::Builder::new().name("detector".into()).spawn(move || {
        // Whoever would hear it may have failed first.
        let _ = end.send(detect(detector, &post));
    });
    listening.map_err(|it| Failure::failed("cannot start", &it))?;
    let orders = match file {
        Some(config) => {
            duty.take(config)?;
            futures::stream::pending().boxed()
        }
        None => place.watch(&client),
    };
    Err(duty.serve(Ears { orders, found, ended }).await)
}

/// What identifies this machine, unless nobody is to ask for it.
fn machine_id(options: &Options) -> Result<Option<String>, Failure> {
    if options.skip_host_id_check || options.dry_run {
        return Ok(None);
    }
    let way_out = "give its path with --machine-id-path, or --skip-host-id-check to trust --node-name alone";
    identity::read(&options.machine_id_path)
        .map(Some)
        .map_err(|it| Failure::bad_input(format!("this machine cannot be told from others: {it}; {way_out}")))
}

/// Without them the agent does all it has to, but no probe succeeds.
fn answers(options: &Options, proc: &Proc) -> Option<Arc<Answers>> {
    match Answers::in_directory(&options.state_dir, proc.clone()) {
        Ok(answers) => Some(Arc::new(answers)),
        Err(error) => {
            warn!(directory = %options.state_dir.display(), %error, "--state-dir cannot be written: --probe will fail");
            None
        }
    }
}
