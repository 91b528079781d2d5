//! Programs that are started while all cores start others: who is noticed, how soon, and what that costs.
//!
//! The agent with each of its detectors, and a bare reader of the proc connector that does nothing but compare names, are
//! measured one after the other in the same storm.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on shall panic")]

#[path = "storm/bare_reader.rs"]
mod bare_reader;
#[path = "storm/cost.rs"]
mod cost;

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use cost::Cost;

/// How long they live, in milliseconds.
const LIVES: [u64; 4] = [0, 20, 100, 600];
const OF_EACH: usize = 100;
const BETWEEN_TWO: Duration = Duration::from_millis(12);

fn main() {
    if std::env::args().any(|it| it == bare_reader::ARGUMENT) {
        bare_reader::run(&LIVES.map(name));
    }
    let programs = tempfile::tempdir().unwrap();
    for life in LIVES {
        let of = if life == 0 { "/bin/true" } else { "/bin/sleep" };
        std::fs::copy(of, programs.path().join(name(life))).unwrap();
    }
    let config = programs.path().join("reclaim.toml");
    std::fs::write(&config, format!("match_commands = {:?}\n", LIVES.map(name))).unwrap();
    let agent = |detector: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_5spot-reclaim-agent"));
        command.args(["--dry-run", "--detector", detector, "--config"]).arg(&config);
        command
    };
    let mut bare = Command::new(std::env::current_exe().unwrap());
    bare.arg(bare_reader::ARGUMENT);

    let mut out = std::io::stdout();
    let cores = thread::available_parallelism().unwrap();
    writeln!(out, "{OF_EACH} programs of each life, in a storm of others on {cores} cores").unwrap();
    let lives = LIVES.map(|it| format!("{it:>4} ms")).join(" ");
    writeln!(out, "{:<14}  noticed of: {lives}   p50      p99   per start   memory", "").unwrap();
    for (who, command) in [("netlink", agent("netlink")), ("poll", agent("poll")), ("a bare reader", bare)] {
        let result = Storm::on(programs.path()).weathered_by(command);
        writeln!(out, "{who:<14}  {result}").unwrap();
    }
}

/// What a program of this life is called.
fn name(life: u64) -> String {
    format!("storm-{life}")
}

/// A program that was started.
struct Start {
    life: u64,
    at: Timestamp,
}

struct Storm<'a> {
    programs: &'a Path,
    over: AtomicBool,
    starts: AtomicU64,
}

impl<'a> Storm<'a> {
    fn on(programs: &'a Path) -> Self {
        Storm { programs, over: AtomicBool::new(false), starts: AtomicU64::new(0) }
    }

    fn weathered_by(&self, mut command: Command) -> Result {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let armed: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(armed["event"], "armed");
        let noticed = thread::spawn(move || {
            let matches =
                lines.map_while(std::result::Result::ok).map(|it| serde_json::from_str::<Value>(&it).unwrap());
            matches.map(|it| (it["pid"].as_u64().unwrap(), it["at"].as_str().unwrap().parse().unwrap())).collect()
        });
        let before = Cost::of(child.id());
        let started = self.blow();
        // What polls has its time to come round.
        thread::sleep(Duration::from_secs(1));
        let spent = Cost::of(child.id()).since(before);
        end(&mut child);
        Result { started, noticed: noticed.join().unwrap(), spent, starts: self.starts.load(Ordering::Relaxed) }
    }

    /// Starts the programs, each while all cores are busy.
    fn blow(&self) -> HashMap<u64, Start> {
        let cores = thread::available_parallelism().unwrap().get();
        thread::scope(|scope| {
            for _ in 0..cores {
                scope.spawn(|| {
                    while !self.over.load(Ordering::Relaxed) {
                        Command::new("/bin/true").status().unwrap();
                        self.starts.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let mut started = HashMap::new();
            for life in LIVES.repeat(OF_EACH) {
                let at = Timestamp::now();
                let seconds = Duration::from_millis(life).as_secs_f64().to_string();
                let mut program = Command::new(self.programs.join(name(life))).arg(seconds).spawn().unwrap();
                started.insert(u64::from(program.id()), Start { life, at });
                self.starts.fetch_add(1, Ordering::Relaxed);
                scope.spawn(move || program.wait().unwrap());
                thread::sleep(BETWEEN_TWO);
            }
            self.over.store(true, Ordering::Relaxed);
            started
        })
    }
}

fn end(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// What came of one storm.
struct Result {
    started: HashMap<u64, Start>,
    noticed: HashMap<u64, Timestamp>,
    spent: Cost,
    starts: u64,
}

impl std::fmt::Display for Result {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "            ")?;
        for life in LIVES {
            let of_this = |(pid, start): &(&u64, &Start)| start.life == life && self.noticed.contains_key(*pid);
            write!(f, "{:>7} ", self.started.iter().filter(of_this).count())?;
        }
        let mut after: Vec<f64> = self
            .noticed
            .iter()
            .filter_map(|(pid, at)| self.started.get(pid).map(|it| at.duration_since(it.at).as_secs_f64() * 1000.0))
            .collect();
        after.sort_by(f64::total_cmp);
        let at = |percent: usize| after.get(after.len() * percent / 100).copied().unwrap_or(f64::NAN);
        #[allow(clippy::cast_precision_loss, reason = "a few thousand")]
        let each = self.spent.processor.as_secs_f64() * 1e6 / self.starts as f64;
        write!(f, "{:>6.2} ms {:>6.2} ms {each:>7.1} µs {:>5.1} MiB", at(50), at(99), self.spent.memory)
    }
}
