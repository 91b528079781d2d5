//! Where one control plane keeps its logs, certificates, data and kubeconfigs, and how old runs go away.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

/// How many runs are kept to be looked at.
const KEPT: usize = 20;

/// The runs of this process, so that a failure can say where the logs are.
static LIVE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// `<cache>/runs/<unix time>-<pid>-<name>/`, readable by its owner alone.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
}

impl RunDir {
    /// Makes a new one, and tidies up after runs whose process is gone.
    pub fn create(cache: &Path, name: &str) -> io::Result<Self> {
        let runs = cache.join("runs");
        private_directory(&runs)?;
        tidy(&runs);
        let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let stem = format!("{started}-{}-{name}", std::process::id());
        for attempt in 0.. {
            let path = runs.join(if attempt == 0 { stem.clone() } else { format!("{stem}-{attempt}") });
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    LIVE.lock().expect("no holder panics").push(path.clone());
                    return Ok(Self { path });
                }
                Err(taken) if taken.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        unreachable!("the attempts are endless")
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A directory inside it, made if it is not there.
    pub fn subdirectory(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        private_directory(&path)?;
        Ok(path)
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        LIVE.lock().expect("no holder panics").retain(|path| *path != self.path);
        // The data is worth nothing without its server; the logs stay.
        let _ = fs::remove_dir_all(self.path.join("etcd"));
    }
}

/// The runs this process has going.
pub fn live_runs() -> Vec<PathBuf> {
    LIVE.lock().expect("no holder panics").clone()
}

fn private_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).recursive(true).create(path)
}

/// Removes the data of ended runs, and all of the older ones. Two processes may do this at once: what is gone is gone.
fn tidy(runs: &Path) {
    let mut ended: Vec<(u64, PathBuf)> = fs::read_dir(runs)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let (started, pid) = parse_name(entry.file_name().to_str()?)?;
            (!is_alive(pid)).then(|| (started, entry.path()))
        })
        .collect();
    ended.sort_unstable_by(|newer, older| older.cmp(newer));
    for (rank, (_, path)) in ended.iter().enumerate() {
        let doomed = if rank < KEPT { path.join("etcd") } else { path.clone() };
        let _ = fs::remove_dir_all(doomed);
    }
}

fn parse_name(name: &str) -> Option<(u64, u32)> {
    let mut parts = name.splitn(3, '-');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn is_alive(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Above the kernel's largest process id.
    const NO_PROCESS: u32 = 4_194_305;

    #[test]
    fn ended_runs_lose_their_data_and_only_the_newest_stay() {
        let cache = tempfile::tempdir().unwrap();
        let runs = cache.path().join("runs");
        for started in 0..30 {
            fs::create_dir_all(runs.join(format!("{started}-{NO_PROCESS}-x/etcd"))).unwrap();
        }
        let new = RunDir::create(cache.path(), "new").unwrap();
        assert_eq!(fs::read_dir(&runs).unwrap().count(), KEPT + 1);
        assert!(runs.join(format!("29-{NO_PROCESS}-x")).is_dir());
        assert!(!runs.join(format!("29-{NO_PROCESS}-x/etcd")).exists());
        assert!(!runs.join(format!("9-{NO_PROCESS}-x")).exists());
        assert!(new.path().is_dir());
    }

    #[test]
    fn a_run_whose_process_lives_is_never_touched() {
        let cache = tempfile::tempdir().unwrap();
        let old = cache.path().join(format!("runs/0-{}-x/etcd", std::process::id()));
        fs::create_dir_all(&old).unwrap();
        for started in 1..30 {
            fs::create_dir_all(cache.path().join(format!("runs/{started}-{NO_PROCESS}-x"))).unwrap();
        }
        drop(RunDir::create(cache.path(), "new").unwrap());
        assert!(old.is_dir());
    }

    #[test]
    fn two_runs_of_one_name_in_one_second_are_two_directories() {
        let cache = tempfile::tempdir().unwrap();
        let (a, b) = (RunDir::create(cache.path(), "x").unwrap(), RunDir::create(cache.path(), "x").unwrap());
        assert_ne!(a.path(), b.path());
        assert!(live_runs().contains(&a.path().to_owned()));
    }
}
