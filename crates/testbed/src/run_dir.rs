//! The directory of one control plane: logs, certificates, data and kubeconfigs. Removes old runs.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

/// How many ended runs are kept.
const KEPT_RUNS: usize = 20;

/// The runs of this process, so that errors can print the path of the logs.
static LIVE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// `<cache>/runs/<unix time>-<pid>-<name>/`, with mode 0700.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
}

impl RunDir {
    /// Creates a directory, and cleans up after runs whose process has exited.
    pub fn create(cache: &Path, name: &str) -> io::Result<Self> {
        let runs = cache.join("runs");
        private_directory(&runs)?;
        remove_old_runs(&runs);
        let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let stem = format!("{started}-{}-{name}", std::process::id());
        for attempt in 0.. {
            let path = runs.join(if attempt == 0 { stem.clone() } else { format!("{stem}-{attempt}") });
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    LIVE.lock().expect("no thread panics while holding the lock").push(path.clone());
                    return Ok(Self { path });
                }
                Err(taken) if taken.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        unreachable!("the loop has no last iteration")
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A subdirectory, created if it does not exist.
    pub fn subdirectory(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        private_directory(&path)?;
        Ok(path)
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        LIVE.lock().expect("no thread panics while holding the lock").retain(|path| *path != self.path);
        // The data is useless without its server; the logs are kept.
        let _ = fs::remove_dir_all(self.path.join("etcd"));
    }
}

/// The active runs of this process.
pub fn live_runs() -> Vec<PathBuf> {
    LIVE.lock().expect("no thread panics while holding the lock").clone()
}

fn private_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).recursive(true).create(path)
}

/// Removes the data of ended runs, and the oldest runs entirely. Ignores errors: another process may do the same.
fn remove_old_runs(runs: &Path) {
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
        let removed = if rank < KEPT_RUNS { path.join("etcd") } else { path.clone() };
        let _ = fs::remove_dir_all(removed);
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

    /// Above the kernel's largest process ID.
    const NO_PROCESS: u32 = 4_194_305;

    #[test]
    fn ended_runs_lose_their_data_and_only_the_newest_are_kept() {
        let cache = tempfile::tempdir().unwrap();
        let runs = cache.path().join("runs");
        for started in 0..30 {
            fs::create_dir_all(runs.join(format!("{started}-{NO_PROCESS}-x/etcd"))).unwrap();
        }
        let new = RunDir::create(cache.path(), "new").unwrap();
        assert_eq!(fs::read_dir(&runs).unwrap().count(), KEPT_RUNS + 1);
        assert!(runs.join(format!("29-{NO_PROCESS}-x")).is_dir());
        assert!(!runs.join(format!("29-{NO_PROCESS}-x/etcd")).exists());
        assert!(!runs.join(format!("9-{NO_PROCESS}-x")).exists());
        assert!(new.path().is_dir());
    }

    #[test]
    fn run_of_a_living_process_is_kept() {
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
    fn runs_with_equal_name_and_time_are_distinct() {
        let cache = tempfile::tempdir().unwrap();
        let (a, b) = (RunDir::create(cache.path(), "x").unwrap(), RunDir::create(cache.path(), "x").unwrap());
        assert_ne!(a.path(), b.path());
        assert!(live_runs().contains(&a.path().to_owned()));
    }
}
