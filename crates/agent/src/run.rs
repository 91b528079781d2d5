//! Selects the mode from the options and wires the parts of the agent together.

use std::convert::Infallible;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use futures::StreamExt as _;
use tokio::sync::mpsc;
use tracing::{debug, info, warn};

use crate::agent::{Agent, Inputs};
use crate::client::ClientFactory;
use crate::config::{MAX_CONFIG_BYTES, ReclaimAgentConfig};
use crate::config_map::ConfigMapRef;
use crate::error::RunError;
use crate::machine_id;
use crate::options::Options;
use crate::probe::{self, ProbeState};
use crate::reclaim::{NodeIdentity, ReclaimState, RequestWriter};
use crate::shutdown;
use crate::signals::process::{
    AnswerProbe, ArmedScanner, Detector, DetectorChoice, ProcessError, ProcessScanner, Procfs, Scope,
};
use crate::signals::{self, MatchSink, OwnerSignal, SignalError};

/// The result of a run that ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    NoMatch,
    Match,
}

pub(crate) fn run(options: &Options) -> Result<Outcome, RunError> {
    if options.probe {
        probe::check(&options.state_dir, &Procfs::at(&options.proc_root))?;
        return Ok(Outcome::NoMatch);
    }
    if options.detector == DetectorChoice::Netlink && options.poll_interval.is_some() {
        return Err(RunError::UnusedPollInterval);
    }
    let file = options.config.as_deref().map(read_config_file).transpose()?;
    let procfs = open_procfs(&options.proc_root)?;
    let never = match file {
        Some(config) if options.oneshot => return scan_once(config, procfs),
        None if options.oneshot => return scan_once(block_on(read_config_map(options))?, procfs),
        Some(config) if options.dry_run => run_without_cluster(options, &config, procfs)?,
        file => block_on(run_in_cluster(options, file, procfs))?,
    };
    match never {}
}

fn block_on<T>(work: impl Future<Output = Result<T, RunError>>) -> Result<T, RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(RunError::Runtime)?.block_on(work)
}

fn read_config_file(path: &Path) -> Result<ReclaimAgentConfig, RunError> {
    let mut text = String::new();
    // One byte more than is valid, so that a longer file is rejected.
    let read = File::open(path).and_then(|file| file.take(MAX_CONFIG_BYTES as u64 + 1).read_to_string(&mut text));
    read.map_err(|source| RunError::ReadConfigFile { path: path.to_owned(), source })?;
    parse_config(&text, path.display().to_string())
}

async fn read_config_map(options: &Options) -> Result<ReclaimAgentConfig, RunError> {
    let config_map = ConfigMapRef::of_node(&node_name(options)?, &options.agent_namespace);
    let client = ClientFactory::infer().await?.new_client().map_err(RunError::Client)?;
    debug!(config = %config_map, "Reading agent configuration");
    let text = config_map
        .read(&client)
        .await
        .map_err(|source| RunError::ReadConfigMap { config_map: config_map.to_string(), source })?;
    if let Some(text) = text {
        return parse_config(&text, config_map.to_string());
    }
    warn!(config = %config_map, "No agent configuration; nothing to match");
    Ok(ReclaimAgentConfig::empty())
}

fn parse_config(text: &str, config_source: String) -> Result<ReclaimAgentConfig, RunError> {
    ReclaimAgentConfig::parse(text).map_err(|source| RunError::InvalidConfig { config_source, source })
}

/// A directory without processes is not a mounted procfs, and with the mount option `hidepid` the processes of other users may be
/// hidden: nothing would ever match.
fn open_procfs(root: &Path) -> Result<Procfs, RunError> {
    let procfs = Procfs::at(root);
    match procfs.pids() {
        Ok(pids) if pids.is_empty() => Err(RunError::EmptyProcRoot { path: root.to_owned() }),
        Ok(_) if procfs.hides_processes() => Err(RunError::HiddenProcesses { path: root.to_owned() }),
        Ok(_) => Ok(procfs),
        Err(source) => Err(RunError::ReadProcRoot { path: root.to_owned(), source }),
    }
}

fn scan_once(config: ReclaimAgentConfig, procfs: Procfs) -> Result<Outcome, RunError> {
    let result = ProcessScanner::new(config.patterns, procfs).scan(Scope::All);
    let matches = result.map_err(ProcessError::ListProcesses).map_err(SignalError::from)?.matches;
    let outcome = if matches.is_empty() { Outcome::NoMatch } else { Outcome::Match };
    for found in matches {
        MatchSink::JsonLines.report(&found.into())?;
    }
    Ok(outcome)
}

/// The owner signals of the agent; a new kind of signal is added here.
fn create_signals(
    options: &Options,
    procfs: Procfs,
    sink: MatchSink,
    probe: Option<Arc<ProbeState>>,
) -> Result<Vec<Arc<dyn OwnerSignal>>, RunError> {
    let detector = Detector::open(options.detector, options.poll_interval)?;
    let answer_probe = probe.map(|probe| -> AnswerProbe { Box::new(move |pid| probe.answer(pid)) });
    Ok(vec![Arc::new(ArmedScanner::new(detector, procfs, sink, answer_probe))])
}

/// `--dry-run` with `--config`.
fn run_without_cluster(options: &Options, config: &ReclaimAgentConfig, procfs: Procfs) -> Result<Infallible, RunError> {
    log_identity(options);
    if config.is_empty() {
        warn!("Agent configuration has no patterns; nothing will match");
    }
    let signals = create_signals(options, procfs, MatchSink::JsonLines, None)?;
    stop_on_shutdown(signals.clone(), None)?;
    for signal in &signals {
        info!(detector = signal.detector(), patterns = config.patterns.len(), "Armed");
        signal.arm(config)?;
    }
    let mut failures = signals::start(&signals).map_err(RunError::Thread)?;
    Err(failures.blocking_recv().unwrap_or(SignalError::ThreadEnded).into())
}

/// The configuration comes from `file` or from the ConfigMap; a dry run writes nothing.
async fn run_in_cluster(
    options: &Options,
    file: Option<ReclaimAgentConfig>,
    procfs: Procfs,
) -> Result<Infallible, RunError> {
    let node = node_name(options)?;
    let machine_id = machine_id(options)?;
    let clients = ClientFactory::infer().await?;
    let client = clients.new_client().map_err(RunError::Client)?;
    log_identity(options);

    let probe = if options.dry_run { None } else { create_probe_state(options, &procfs) };
    let (sender, matches) = mpsc::channel(signals::MAX_PENDING_MATCHES);
    let sink = if options.dry_run { MatchSink::JsonLines } else { MatchSink::run_loop(sender) };
    let signals = create_signals(options, procfs, sink, probe.clone())?;
    stop_on_shutdown(signals.clone(), probe.clone())?;

    let config_map = ConfigMapRef::of_node(&node, &options.agent_namespace);
    let config_source = options.config.as_ref().map_or_else(|| config_map.to_string(), |it| it.display().to_string());
    let reclaim = (!options.dry_run).then(|| {
        let node = NodeIdentity { name: node.clone(), machine_id };
        ReclaimState::new(RequestWriter { clients, client: client.clone(), node })
    });
    let mut agent = Agent::new(node, config_source, signals.clone(), reclaim).with_probe(probe);
    let signal_failures = signals::start(&signals).map_err(RunError::Thread)?;
    let configs = match file {
        Some(config) => {
            agent.apply_config(config)?;
            futures::stream::pending().boxed()
        }
        None => config_map.watch(&client),
    };
    Ok(agent.run(Inputs { configs, matches, signal_failures }).await?)
}

fn stop_on_shutdown(signals: Vec<Arc<dyn OwnerSignal>>, probe: Option<Arc<ProbeState>>) -> Result<(), RunError> {
    let cleanup = move || {
        for signal in signals {
            signal.stop();
        }
        if let Some(probe) = probe {
            probe.set_not_armed("it was stopped");
        }
    };
    shutdown::on_signal(cleanup).map_err(RunError::Shutdown)
}

/// Logs what will be compared with the Node before anything is written to it.
fn log_identity(options: &Options) {
    let node = options.node_name.as_deref().unwrap_or_default();
    if options.skip_host_id_check {
        info!(node, "Machine ID check is disabled");
        return;
    }
    match machine_id::read(&options.machine_id_path) {
        Ok(machine_id) => info!(node, machine_id, "Read machine ID"),
        Err(error) => warn!(node, %error, "Cannot read machine ID; reclaim requests will fail"),
    }
}

fn node_name(options: &Options) -> Result<String, RunError> {
    let name = options.node_name.clone().filter(|name| !name.is_empty()).ok_or(RunError::MissingNodeName)?;
    let is_valid = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || matches!(it, '-' | '.');
    if name.chars().all(is_valid) { Ok(name) } else { Err(RunError::InvalidNodeName { name }) }
}

/// `None` if the Node's machine ID is not to be compared.
fn machine_id(options: &Options) -> Result<Option<String>, RunError> {
    if options.skip_host_id_check || options.dry_run {
        return Ok(None);
    }
    machine_id::read(&options.machine_id_path).map(Some).map_err(RunError::MachineId)
}

/// Without it the agent works, but no probe succeeds.
fn create_probe_state(options: &Options, procfs: &Procfs) -> Option<Arc<ProbeState>> {
    match ProbeState::create(&options.state_dir, procfs.clone()) {
        Ok(probe) => Some(Arc::new(probe)),
        Err(error) => {
            warn!(directory = %options.state_dir.display(), %error, "Cannot write --state-dir; --probe will fail");
            None
        }
    }
}
