use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::super::procfs::MAX_CMDLINE;
use super::*;

const NONE: [u32; 0] = [];

/// A directory that looks like a procfs.
struct FakeProcfs(TempDir);

fn procfs() -> FakeProcfs {
    FakeProcfs(TempDir::new().unwrap())
}

impl FakeProcfs {
    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Adds a process of the host.
    fn process(self, pid: u32, comm: &str, start_time: u64) -> Self {
        let stat = format!("{pid} ({comm}) S 1 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 {start_time} 0 0\n");
        self.file(pid, "cgroup", "0::/user.slice\n")
            .file(pid, "comm", &format!("{comm}\n"))
            .file(pid, "cmdline", &format!("{comm}\0"))
            .file(pid, "stat", &stat)
    }

    fn file(self, pid: u32, name: &str, text: &str) -> Self {
        let directory = self.path().join(pid.to_string());
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(name), text).unwrap();
        self
    }

    fn without(self, pid: u32, name: &str) -> Self {
        fs::remove_file(self.path().join(pid.to_string()).join(name)).unwrap();
        self
    }

    fn remove(&self, pid: u32) {
        fs::remove_dir_all(self.path().join(pid.to_string())).unwrap();
    }

    /// Makes this process the agent.
    fn set_self(&self, pid: u32) {
        std::os::unix::fs::symlink(pid.to_string(), self.path().join("self")).unwrap();
    }

    fn scanner(&self) -> ProcessScanner {
        let patterns = Patterns { commands: vec!["idea".into()], argv_substrings: vec!["--idea".into()] };
        ProcessScanner::new(patterns, Procfs::at(self.path()))
    }

    fn scan_all(&self) -> Vec<u32> {
        matches(&mut self.scanner(), Scope::All)
    }
}

fn matches(scanner: &mut ProcessScanner, scope: Scope) -> Vec<u32> {
    let mut pids: Vec<u32> = scanner.scan(scope).unwrap().matches.iter().map(|found| found.pid).collect();
    pids.sort_unstable();
    pids
}

#[test]
fn all_matching_processes_are_returned() {
    let odd_name = ") S idea (";
    let procfs = procfs().process(7, "idea", 1).process(8, "vi", 1).process(9, "idea", 2).process(10, odd_name, 3);
    assert_eq!(procfs.scan_all(), [7, 9]);
    assert_eq!(procfs.file(10, "cmdline", "x\0--idea\0").scan_all(), [7, 9, 10]);
}

#[test]
fn process_is_returned_once_but_reused_pid_again() {
    let procfs = procfs().process(7, "idea", 1);
    let mut scanner = procfs.scanner();
    assert_eq!(matches(&mut scanner, Scope::All), [7]);
    assert_eq!(matches(&mut scanner, Scope::All), NONE);
    assert_eq!(matches(&mut scanner, Scope::Process(7)), NONE);
    let _reused = procfs.process(7, "idea", 2);
    assert_eq!(matches(&mut scanner, Scope::Process(7)), [7]);
}

#[test]
fn exited_processes_are_pruned() {
    let procfs = procfs().process(7, "idea", 1);
    let mut scanner = procfs.scanner();
    matches(&mut scanner, Scope::All);
    procfs.remove(7);
    matches(&mut scanner, Scope::All);
    assert!(scanner.reported.is_empty());
}

/// Pruning reads one file per reported process: thousands of matches must not make each further one cost thousands of
/// reads.
#[test]
fn reported_processes_are_not_reread_for_each_new_match() {
    let many = 1..=u32::try_from(PRUNE_THRESHOLD).unwrap() + 10;
    let procfs = many.clone().fold(procfs(), |procfs, pid| procfs.process(pid, "idea", 1)).process(5000, "idea", 1);
    let mut scanner = procfs.scanner();
    many.for_each(|pid| assert_eq!(matches(&mut scanner, Scope::Process(pid)), [pid]));
    procfs.remove(1);
    assert_eq!(matches(&mut scanner, Scope::Process(5000)), [5000]);
    assert!(scanner.reported.contains(&(1, 1)), "not pruned yet");
    matches(&mut scanner, Scope::All);
    assert!(!scanner.reported.contains(&(1, 1)));
}

/// A process decides what the kernel shows as its command line.
#[test]
fn oversized_cmdline_is_truncated() {
    let procfs = procfs().process(7, "vi", 1).process(8, "idea", 1);
    for pid in ["7", "8"] {
        let cmdline = fs::File::options().write(true).open(procfs.path().join(pid).join("cmdline")).unwrap();
        cmdline.set_len(1 << 30).unwrap();
    }
    assert_eq!(procfs.scan_all(), [8]);
    assert!(Procfs::at(procfs.path()).process(7).cmdline().unwrap().len() <= MAX_CMDLINE);
}

/// An argument of the maximum length, such as a class path, does not hide the one that follows it.
#[test]
fn argument_after_the_longest_one_matches() {
    let argv = format!("java\0{}\0--idea\0", "x".repeat(128 << 10));
    assert_eq!(procfs().process(7, "java", 1).file(7, "cmdline", &argv).scan_all(), [7]);
    let argv = format!("java\0{}\0--idea\0", "x".repeat(MAX_CMDLINE));
    assert_eq!(procfs().process(7, "java", 1).file(7, "cmdline", &argv).scan_all(), NONE);
}

/// A pod can let reads of its command lines block for ever, with memory that a user-space file system provides. Neither an
/// ordinary process of a pod nor one with the name of the agent may stop the scan.
#[test]
fn blocking_command_line_of_a_pod_does_not_stop_the_scan() {
    let pod = "0::/kubepods/besteffort/pod0a1b2c3d-1234-5678-9abc-def012345678/4f5e\n";
    let procfs = procfs().process(7, "agent", 1).process(8, "agent", 1).process(9, "vi", 1).process(10, "idea", 1);
    let procfs = procfs.file(8, "cgroup", pod).file(9, "cgroup", pod);
    procfs.set_self(7);
    for pid in ["8", "9"] {
        let cmdline = procfs.path().join(pid).join("cmdline");
        fs::remove_file(&cmdline).unwrap();
        // Opening it blocks, because nothing writes to it.
        assert!(std::process::Command::new("mkfifo").arg(&cmdline).status().unwrap().success());
    }
    let mut scanner = procfs.scanner();
    let (sender, scanned) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(matches(&mut scanner, Scope::All)));
    assert_eq!(scanned.recv_timeout(std::time::Duration::from_secs(30)), Ok(vec![10]));
}

/// In its own container the agent finds its probe, although that is a pod's process too.
#[test]
fn probe_in_the_container_of_the_agent_is_recognised() {
    let pod = "0::/kubepods/besteffort/pod0a1b2c3d-1234-5678-9abc-def012345678/4f5e\n";
    let procfs = procfs().process(7, "agent", 1).process(8, "agent", 1).file(8, "cmdline", "agent\0--probe\0");
    let procfs = procfs.file(7, "cgroup", pod).file(8, "cgroup", pod);
    procfs.set_self(7);
    assert_eq!(procfs.scanner().scan(Scope::All).unwrap().probes, [8]);
    let procfs = procfs.file(8, "cgroup", "0::/kubepods/other\n");
    assert_eq!(procfs.scanner().scan(Scope::All).unwrap().probes, NONE);
}

#[test]
fn process_that_exits_during_the_scan_does_not_match() {
    for missing in ["comm", "cgroup", "stat"] {
        assert_eq!(procfs().process(7, "idea", 1).without(7, missing).scan_all(), NONE, "{missing}");
    }
    assert_eq!(matches(&mut procfs().scanner(), Scope::Process(7)), NONE);
}

/// The kernel shows an exiting process of a pod in the root of each v1 hierarchy.
#[test]
fn exiting_process_does_not_match() {
    let stat = "7 (idea) Z 1 1 1 0 -1 4194308 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0\n";
    assert_eq!(procfs().process(7, "idea", 1).file(7, "stat", stat).scan_all(), NONE);
}

#[test]
fn agent_does_not_match_itself() {
    let procfs = procfs().process(7, "idea", 1).process(8, "idea", 1);
    procfs.set_self(7);
    assert_eq!(procfs.scan_all(), [8]);
    assert_eq!(matches(&mut procfs.scanner(), Scope::Process(7)), NONE);
}

#[test]
fn probe_is_returned_every_time_and_never_matches() {
    let agent = |procfs: FakeProcfs, pid: u32, argv: &str| procfs.process(pid, "agent", 1).file(pid, "cmdline", argv);
    let procfs = agent(procfs(), 7, "agent\0--idea\0");
    let procfs = agent(procfs, 8, "agent\0--probe\0--idea\0");
    let procfs =
        agent(procfs, 9, "agent\0--idea\0--probed\0").process(10, "vi", 1).file(10, "cmdline", "vi\0--probe\0");
    procfs.set_self(7);
    let mut scanner = procfs.scanner();
    for _ in 0..2 {
        assert_eq!(scanner.scan(Scope::All).unwrap().probes, [8]);
    }
    assert_eq!(scanner.scan(Scope::Process(8)).unwrap(), ScanResult { matches: vec![], probes: vec![8] });
    assert_eq!(procfs.scan_all(), [9]);
}

#[test]
fn cleared_match_is_returned_again() {
    let procfs = procfs().process(7, "idea", 1);
    let mut scanner = procfs.scanner();
    assert_eq!(matches(&mut scanner, Scope::All), [7]);
    scanner.clear_reported();
    assert_eq!(matches(&mut scanner, Scope::All), [7]);
    scanner.set_patterns(Patterns::default());
    assert_eq!(matches(&mut scanner, Scope::All), NONE);
    assert_eq!(matches(&mut scanner, Scope::Process(7)), NONE);
    scanner.set_patterns(Patterns { commands: vec!["idea".into()], ..Patterns::default() });
    assert_eq!(matches(&mut scanner, Scope::Process(7)), [7]);
}

#[test]
fn pod_processes_are_excluded_in_every_layout() {
    let pod = |cgroup: &str| {
        procfs().process(7, "idea", 1).file(7, "cgroup", cgroup).file(1, "cgroup", "0::/../../init.scope\n")
    };
    for cgroup in [
        "0::/../../kubepods.slice/kubepods-besteffort.slice/x.scope\n",
        "8:pids:/kubepods/pod0a1b2c3d-1234-5678-9abc-def012345678/x\n0::/../..\n",
        "0::/../sidecar\n",
        "0::/\n",
    ] {
        assert_eq!(pod(cgroup).scan_all(), NONE, "{cgroup}");
    }
    assert_eq!(pod("0::/../../user.slice\n").scan_all(), [7]);
}
