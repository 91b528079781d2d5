//! Detection while all cores execute other programs: how many programs are detected, how fast, and at what cost.
//!
//! The agent with each detector and a bare reader of the proc connector, which only compares names, are measured one after the
//! other. Then the agent is measured while a pod executes programs with 2 MiB of arguments that nearly match each of 100
//! patterns, next to the bare reader, and to the same programs outside of a pod.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

#[path = "storm/bare_reader.rs"]
mod bare_reader;
#[path = "storm/pod.rs"]
mod pod;
#[path = "storm/usage.rs"]
mod usage;

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use usage::Usage;

/// In milliseconds.
const LIFETIMES: [u64; 4] = [0, 20, 100, 600];
const PROGRAMS_PER_LIFETIME: usize = 100;
const START_INTERVAL: Duration = Duration::from_millis(12);

fn main() {
    if std::env::args().any(|argument| argument == bare_reader::ARGUMENT) {
        bare_reader::run(&LIFETIMES.map(program_name));
    }
    if std::env::args().any(|argument| argument == pod::ARGUMENT) {
        pod::run();
    }
    let programs = tempfile::tempdir().unwrap();
    for lifetime in LIFETIMES {
        let source = if lifetime == 0 { "/bin/true" } else { "/bin/sleep" };
        std::fs::copy(source, programs.path().join(program_name(lifetime))).unwrap();
    }
    let (config, with_patterns) = (programs.path().join("reclaim.toml"), programs.path().join("patterns.toml"));
    let commands = format!("match_commands = {:?}\n", LIFETIMES.map(program_name));
    std::fs::write(&config, &commands).unwrap();
    std::fs::write(&with_patterns, format!("{commands}match_argv_substrings = {:?}\n", pod::patterns())).unwrap();
    let agent = |detector: &str, config: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_5spot-reclaim-agent"));
        command.args(["--dry-run", "--detector", detector, "--config"]).arg(config);
        command
    };
    let bare_reader = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(bare_reader::ARGUMENT);
        command
    };

    let mut out = std::io::stdout();
    let cores = thread::available_parallelism().unwrap();
    writeln!(out, "{PROGRAMS_PER_LIFETIME} programs per lifetime, in an exec storm on {cores} cores").unwrap();
    let lifetimes = LIFETIMES.map(|lifetime| format!("{lifetime:>4} ms")).join(" ");
    writeln!(out, "{:<14}  detected:   {lifetimes}   p50      p99   per exec   memory", "").unwrap();
    for (name, command) in
        [("netlink", agent("netlink", &config)), ("poll", agent("poll", &config)), ("bare reader", bare_reader())]
    {
        let measurement = Storm::new(programs.path(), Load::Programs).measure(command);
        writeln!(out, "{name:<14}  {measurement}").unwrap();
    }
    writeln!(out, "\nwith 100 substrings, while 2 MiB of nearly matching arguments are executed in a loop").unwrap();
    let (pod, host) = ("kubepods/besteffort/pod00000000-0000-0000-0000-000000000000/main", "host");
    for (name, command, load) in [
        ("no such program", agent("netlink", &with_patterns), Load::None),
        ("in a pod", agent("netlink", &with_patterns), Load::LongArguments(pod)),
        ("  bare reader", bare_reader(), Load::LongArguments(pod)),
        ("not in a pod", agent("netlink", &with_patterns), Load::LongArguments(host)),
    ] {
        let measurement = Storm::new(programs.path(), load).measure(command);
        writeln!(out, "{name:<15} {measurement}").unwrap();
    }
}

/// What runs while the programs are started.
#[derive(Clone, Copy)]
enum Load {
    None,
    /// Short programs on all cores.
    Programs,
    /// Programs with long arguments on all cores, in this cgroup.
    LongArguments(&'static str),
}

fn program_name(lifetime: u64) -> String {
    format!("storm-{lifetime}")
}

struct Start {
    lifetime: u64,
    at: Timestamp,
}

struct Storm<'a> {
    programs: &'a Path,
    load: Load,
    is_over: AtomicBool,
    execs: AtomicU64,
}

impl<'a> Storm<'a> {
    fn new(programs: &'a Path, load: Load) -> Self {
        Storm { programs, load, is_over: AtomicBool::new(false), execs: AtomicU64::new(0) }
    }

    fn measure(&self, mut command: Command) -> Measurement {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let armed: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(armed["event"], "armed");
        let detected = thread::spawn(move || {
            let matches = lines.map_while(Result::ok).map(|line| serde_json::from_str::<Value>(&line).unwrap());
            matches.map(|it| (it["pid"].as_u64().unwrap(), it["at"].as_str().unwrap().parse().unwrap())).collect()
        });
        let before = Usage::of(child.id());
        let started = self.run();
        // Time for a last poll.
        thread::sleep(Duration::from_secs(1));
        let usage = Usage::of(child.id()).since(before);
        child.kill().unwrap();
        child.wait().unwrap();
        let (detected, execs) = (detected.join().unwrap(), self.execs.load(Ordering::Relaxed));
        let counts_all = !matches!(self.load, Load::LongArguments(_));
        Measurement { started, detected, usage, execs, counts_all }
    }

    /// Starts the programs while all cores are busy.
    fn run(&self) -> HashMap<u64, Start> {
        let cores = thread::available_parallelism().unwrap().get();
        let (busy_cores, _pod) = match self.load {
            Load::None => (0, None),
            Load::Programs => (cores, None),
            Load::LongArguments(cgroup) => (0, Some(pod::Pod::start(cgroup))),
        };
        thread::scope(|scope| {
            for _ in 0..busy_cores {
                scope.spawn(|| {
                    while !self.is_over.load(Ordering::Relaxed) {
                        Command::new("/bin/true").status().unwrap();
                        self.execs.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let mut started = HashMap::new();
            for lifetime in LIFETIMES.repeat(PROGRAMS_PER_LIFETIME) {
                let at = Timestamp::now();
                let seconds = Duration::from_millis(lifetime).as_secs_f64().to_string();
                let program = self.programs.join(program_name(lifetime));
                let mut process = Command::new(program).arg(seconds).spawn().unwrap();
                started.insert(u64::from(process.id()), Start { lifetime, at });
                self.execs.fetch_add(1, Ordering::Relaxed);
                scope.spawn(move || process.wait().unwrap());
                thread::sleep(START_INTERVAL);
            }
            self.is_over.store(true, Ordering::Relaxed);
            started
        })
    }
}

struct Measurement {
    /// By pid.
    started: HashMap<u64, Start>,
    detected: HashMap<u64, Timestamp>,
    usage: Usage,
    execs: u64,
    /// Whether `execs` counts all programs that were executed.
    counts_all: bool,
}

impl std::fmt::Display for Measurement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "            ")?;
        for lifetime in LIFETIMES {
            let is_detected =
                |(pid, start): &(&u64, &Start)| start.lifetime == lifetime && self.detected.contains_key(*pid);
            write!(f, "{:>7} ", self.started.iter().filter(is_detected).count())?;
        }
        let mut delays: Vec<f64> = self
            .detected
            .iter()
            .filter_map(|(pid, at)| Some(at.duration_since(self.started.get(pid)?.at).as_secs_f64() * 1000.0))
            .collect();
        delays.sort_by(f64::total_cmp);
        let percentile = |percent: usize| delays.get(delays.len() * percent / 100).copied().unwrap_or(f64::NAN);
        #[allow(clippy::cast_precision_loss, reason = "a few thousand")]
        let per_exec = self.usage.cpu.as_secs_f64() * 1e6 / self.execs as f64;
        let (p50, p99, memory) = (percentile(50), percentile(99), self.usage.memory_mib);
        // The programs of a pod are not counted.
        let per_exec = if self.counts_all { format!("{per_exec:>7.1} µs") } else { "         -".to_owned() };
        write!(f, "{p50:>6.2} ms {p99:>6.2} ms {per_exec} {memory:>5.1} MiB")
    }
}
