use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::*;

const NOBODY: [u32; 0] = [];

/// A tree that looks like a procfs.
struct Tree(TempDir);

fn tree() -> Tree {
    Tree(TempDir::new().unwrap())
}

impl Tree {
    fn path(&self) -> &Path {
        self.0.path()
    }

    /// A process of the host with this name, started at this tick.
    fn with(self, pid: u32, comm: &str, started: u64) -> Self {
        let stat = format!("{pid} ({comm}) S 1 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 {started} 0 0\n");
        let files = [("comm", format!("{comm}\n")), ("cmdline", format!("{comm}\0")), ("stat", stat)];
        self.file(pid, "cgroup", "0::/user.slice\n").files(pid, &files)
    }

    fn files(self, pid: u32, files: &[(&str, String)]) -> Self {
        files.iter().fold(self, |tree, (name, text)| tree.file(pid, name, text))
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

    fn lookout(&self) -> Lookout {
        let patterns = Patterns { commands: vec!["idea".into()], argv_substrings: vec!["--idea".into()] };
        Lookout::new(patterns, Proc::at(self.path()))
    }

    fn found(&self) -> Vec<u32> {
        pids(&mut self.lookout(), Hint::All)
    }
}

fn pids(lookout: &mut Lookout, hint: Hint) -> Vec<u32> {
    let mut found: Vec<u32> = lookout.look(hint).unwrap().matches.iter().map(|it| it.pid).collect();
    found.sort_unstable();
    found
}

#[test]
fn all_that_match_are_found_whatever_their_name_holds() {
    let odd = ") S idea (";
    let tree = tree().with(7, "idea", 1).with(8, "vi", 1).with(9, "idea", 2).with(10, odd, 3);
    assert_eq!(tree.found(), [7, 9]);
    assert_eq!(tree.file(10, "cmdline", "x\0--idea\0").found(), [7, 9, 10]);
}

#[test]
fn each_process_is_told_once_but_an_id_may_come_again() {
    let tree = tree().with(7, "idea", 1);
    let mut lookout = tree.lookout();
    assert_eq!(pids(&mut lookout, Hint::All), [7]);
    assert_eq!(pids(&mut lookout, Hint::All), NOBODY);
    assert_eq!(pids(&mut lookout, Hint::One(7)), NOBODY);
    let _again = tree.with(7, "idea", 2);
    assert_eq!(pids(&mut lookout, Hint::One(7)), [7]);
}

#[test]
fn those_that_have_gone_are_forgotten() {
    let tree = tree().with(7, "idea", 1);
    let mut lookout = tree.lookout();
    pids(&mut lookout, Hint::All);
    fs::remove_dir_all(tree.path().join("7")).unwrap();
    pids(&mut lookout, Hint::All);
    assert!(lookout.told.is_empty());
}

/// Each costs a read: a pattern that thousands match must not make every further one cost thousands.
#[test]
fn those_that_live_are_not_asked_again_for_each_one_more() {
    let many = 1..=u32::try_from(KEPT_IN_MIND).unwrap() + 10;
    let tree = many.clone().fold(tree(), |tree, pid| tree.with(pid, "idea", 1)).with(5000, "idea", 1);
    let mut lookout = tree.lookout();
    many.for_each(|pid| assert_eq!(pids(&mut lookout, Hint::One(pid)), [pid]));
    fs::remove_dir_all(tree.path().join("1")).unwrap();
    assert_eq!(pids(&mut lookout, Hint::One(5000)), [5000]);
    assert!(lookout.told.contains(&(1, 1)), "nobody has looked whether it has gone");
    pids(&mut lookout, Hint::All);
    assert!(!lookout.told.contains(&(1, 1)));
}

/// The kernel shows as a command line what a process tells it to.
#[test]
fn a_command_line_without_end_is_not_read_to_its_end() {
    let tree = tree().with(7, "vi", 1).with(8, "idea", 1);
    for pid in ["7", "8"] {
        let endless = fs::File::options().write(true).open(tree.path().join(pid).join("cmdline")).unwrap();
        endless.set_len(1 << 30).unwrap();
    }
    assert_eq!(tree.found(), [8]);
    assert!(Proc::at(tree.path()).process(7).cmdline().unwrap().len() <= 2 << 20);
}

#[test]
fn a_process_that_goes_while_it_is_looked_at_is_no_match() {
    for gone in ["comm", "cgroup", "stat"] {
        assert_eq!(tree().with(7, "idea", 1).without(7, gone).found(), NOBODY, "{gone}");
    }
    assert_eq!(pids(&mut tree().lookout(), Hint::One(7)), NOBODY);
}

/// The kernel shows an exiting process of a version 1 pod in the root.
#[test]
fn a_process_that_has_begun_to_exit_is_no_match() {
    let stat = "7 (idea) Z 1 1 1 0 -1 4194308 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0\n";
    assert_eq!(tree().with(7, "idea", 1).file(7, "stat", stat).found(), NOBODY);
}

#[test]
fn the_agent_is_not_its_own_match() {
    let tree = tree().with(7, "idea", 1).with(8, "idea", 1);
    std::os::unix::fs::symlink("7", tree.path().join("self")).unwrap();
    assert_eq!(tree.found(), [8]);
    assert_eq!(pids(&mut tree.lookout(), Hint::One(7)), NOBODY);
}

#[test]
fn a_probe_is_noticed_each_time_and_never_a_match() {
    let probe = |it: Tree, pid: u32, argv: &str| it.with(pid, "agent", 1).file(pid, "cmdline", argv);
    let tree = probe(tree(), 7, "agent\0--idea\0");
    let tree = probe(tree, 8, "agent\0--probe\0--idea\0");
    let tree = probe(tree, 9, "agent\0--idea\0--probed\0").with(10, "vi", 1).file(10, "cmdline", "vi\0--probe\0");
    std::os::unix::fs::symlink("7", tree.path().join("self")).unwrap();
    let mut lookout = tree.lookout();
    for _ in 0..2 {
        assert_eq!(lookout.look(Hint::All).unwrap().probes, [8]);
    }
    assert_eq!(lookout.look(Hint::One(8)).unwrap(), Seen { matches: vec![], probes: vec![8] });
    assert_eq!(tree.found(), [9]);
}

#[test]
fn what_was_told_is_told_again_once_it_is_forgotten() {
    let tree = tree().with(7, "idea", 1);
    let mut lookout = tree.lookout();
    assert_eq!(pids(&mut lookout, Hint::All), [7]);
    lookout.forget();
    assert_eq!(pids(&mut lookout, Hint::All), [7]);
    lookout.look_for(Patterns::default());
    assert_eq!(pids(&mut lookout, Hint::All), NOBODY);
    assert_eq!(pids(&mut lookout, Hint::One(7)), NOBODY);
    lookout.look_for(Patterns { commands: vec!["idea".into()], ..Patterns::default() });
    assert_eq!(pids(&mut lookout, Hint::One(7)), [7]);
}

#[test]
fn processes_of_pods_are_not_found_in_any_layout() {
    let pod =
        |cgroup: &str| tree().with(7, "idea", 1).file(7, "cgroup", cgroup).file(1, "cgroup", "0::/../../init.scope\n");
    for cgroup in [
        "0::/../../kubepods.slice/kubepods-besteffort.slice/x.scope\n",
        "8:pids:/kubepods/pod0a1b2c3d-1234-5678-9abc-def012345678/x\n0::/../..\n",
        "0::/../sidecar\n",
        "0::/\n",
    ] {
        assert_eq!(pod(cgroup).found(), NOBODY, "{cgroup}");
    }
    assert_eq!(pod("0::/../../user.slice\n").found(), [7]);
}
