//! Programs of the distribution: the container runtime, the CNI plugins and what network namespaces need.

use std::env;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::artifacts::cache_directory;

/// Required programs and their Debian packages.
const PROGRAMS: [(&str, &str); 4] =
    [("containerd", "containerd"), ("ctr", "containerd"), ("containerd-shim-runc-v2", "containerd"), ("runc", "runc")];
/// Where distributions install the CNI plugins.
const PLUGIN_DIRECTORIES: [&str; 3] = ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];
const PLUGIN: &str = "loopback";
const PLUGINS_PACKAGE: &str = "containernetworking-plugins";
/// Often missing in PATH, but Debian installs runc there.
const SBIN_DIRECTORIES: &str = "/usr/local/sbin:/usr/sbin:/sbin";

/// Why a real node cannot run here.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    #[error("a real node or network namespace needs root: run the tests as root")]
    NotRoot,
    /// Programs are missing, and the distribution has no apt-get.
    #[error(
        "this test needs {packages}. On Debian and Ubuntu the tests install them; elsewhere install containerd, runc and \
         the CNI plugins (in {}) with your package manager", PLUGIN_DIRECTORIES.join(" or ")
    )]
    Missing { packages: String },
    #[error("this test needs {packages}, but `{command}` failed:\n{stderr}")]
    Install { packages: String, command: String, stderr: String },
    #[error("cannot access {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("cannot run apt-get: {source}")]
    AptGet { source: io::Error },
}

/// Paths of the programs.
#[derive(Debug)]
pub(super) struct Programs {
    pub(super) containerd: PathBuf,
    pub(super) ctr: PathBuf,
    /// The directory of the CNI plugins.
    pub(super) plugins: PathBuf,
}

/// The `PATH` for programs that start each other.
pub(crate) fn search_path() -> String {
    format!("{}:{SBIN_DIRECTORIES}", env::var("PATH").unwrap_or_default())
}

/// Finds the programs, and installs missing packages with apt-get if it exists.
pub(super) fn ensure() -> Result<Programs, Unavailable> {
    if !rustix::process::geteuid().is_root() {
        return Err(Unavailable::NotRoot);
    }
    match find() {
        Ok(programs) => return Ok(programs),
        Err(packages) if which("apt-get").is_none() => return Err(missing(&packages)),
        Err(_) => {}
    }
    let _lock = lock()?;
    // Another process may have installed them in the meantime.
    match find() {
        Ok(programs) => Ok(programs),
        Err(packages) => {
            install(&packages)?;
            find().map_err(|packages| missing(&packages))
        }
    }
}

/// Installs the packages of missing programs with apt-get if it exists.
pub(crate) fn ensure_programs(programs: &[(&str, &'static str)]) -> Result<(), Unavailable> {
    if !rustix::process::geteuid().is_root() {
        return Err(Unavailable::NotRoot);
    }
    let mut packages: Vec<&str> =
        programs.iter().filter(|(program, _)| which(program).is_none()).map(|(_, package)| *package).collect();
    packages.dedup();
    if packages.is_empty() {
        return Ok(());
    }
    if which("apt-get").is_none() {
        return Err(missing(&packages));
    }
    let _lock = lock()?;
    install(&packages)
}

/// Finds all programs, or returns the packages of the missing ones as the error.
fn find() -> Result<Programs, Vec<&'static str>> {
    let plugins = PLUGIN_DIRECTORIES.iter().map(PathBuf::from).find(|it| it.join(PLUGIN).exists());
    let mut packages: Vec<&str> =
        PROGRAMS.iter().filter(|(program, _)| which(program).is_none()).map(|(_, package)| *package).collect();
    packages.extend(plugins.is_none().then_some(PLUGINS_PACKAGE));
    packages.dedup();
    match (which("containerd"), which("ctr"), plugins) {
        (Some(containerd), Some(ctr), Some(plugins)) if packages.is_empty() => {
            Ok(Programs { containerd, ctr, plugins })
        }
        _ => Err(packages),
    }
}

fn missing(packages: &[&str]) -> Unavailable {
    Unavailable::Missing { packages: packages.join(", ") }
}

fn which(program: &str) -> Option<PathBuf> {
    search_path().split(':').map(|it| Path::new(it).join(program)).find(|it| it.is_file())
}

fn lock() -> Result<File, Unavailable> {
    let path = cache_directory().unwrap_or_else(|_| env::temp_dir()).join("packages.lock");
    let io = |source| Unavailable::Io { path: path.clone(), source };
    let file = File::create(&path).map_err(io)?;
    file.lock().map_err(io)?;
    Ok(file)
}

/// Whether the preparation of a test succeeded. If not, prints why; with `CI=true` it panics instead.
pub(crate) fn is_possible(prepared: Result<(), Unavailable>) -> bool {
    let Err(reason) = prepared else { return true };
    assert!(env::var_os("CI").is_none_or(|value| value != "true"), "{reason}");
    print(&format!("skipped: {reason}"));
    false
}

/// Prints a line to standard error. Unlike `eprintln!`, it is not captured by the test harness, and does not panic.
pub(super) fn print(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Installs the packages, and updates the package lists if the first attempt fails.
fn install(packages: &[&str]) -> Result<(), Unavailable> {
    let install = format!("apt-get install --yes --no-install-recommends {}", packages.join(" "));
    print(&format!("testbed: installing the packages that a test needs: {install}"));
    let mut stderr = String::new();
    for command in [&install, "apt-get update", &install] {
        let mut words = command.split(' ');
        let mut program = Command::new(words.next().unwrap_or_default());
        let output = program.args(words).env("DEBIAN_FRONTEND", "noninteractive").output();
        let output = output.map_err(|source| Unavailable::AptGet { source })?;
        if output.status.success() && command == install {
            return Ok(());
        }
        stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    }
    Err(Unavailable::Install { packages: packages.join(", "), command: install, stderr })
}
