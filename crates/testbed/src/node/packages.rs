//! What a node is made of besides the kubelet, and where it comes from.

use std::env;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::artifacts::cache_directory;

/// Programs, each with the Debian package that brings it.
const PROGRAMS: [(&str, &str); 4] =
    [("containerd", "containerd"), ("ctr", "containerd"), ("containerd-shim-runc-v2", "containerd"), ("runc", "runc")];
/// Where distributions put the network plugins, of which one is needed.
const PLUGIN_DIRECTORIES: [&str; 3] = ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];
const PLUGIN: &str = "loopback";
const PLUGINS_PACKAGE: &str = "containernetworking-plugins";
/// Not everybody has these in their PATH, and Debian has runc there.
const MORE_PLACES: &str = "/usr/local/sbin:/usr/sbin:/sbin";

/// Why there can be no real node here.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// Containers, control groups and mounts are root's.
    #[error("a real node is for root only: run the tests as root")]
    NotRoot,
    /// Programs are missing that nobody here can install.
    #[error(
        "a real node needs {missing}. On Debian and Ubuntu the tests install it; elsewhere install containerd, runc and the \
         CNI plugins (to {}) with your package manager", PLUGIN_DIRECTORIES.join(" or ")
    )]
    Missing {
        /// The programs.
        missing: String,
    },
    /// They could not be installed.
    #[error("a real node needs {missing}, and installing failed. See to it that this works: {command}\n{output}")]
    Install {
        /// The programs.
        missing: String,
        /// What was run.
        command: String,
        /// What it said of its errors.
        output: String,
    },
    /// A file could not be used.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Where the programs are.
#[derive(Debug)]
pub(super) struct Programs {
    pub(super) containerd: PathBuf,
    pub(super) ctr: PathBuf,
    /// The directory with the network plugins.
    pub(super) plugins: PathBuf,
}

/// The `PATH` on which the programs find each other.
pub(super) fn search_path() -> String {
    format!("{}:{MORE_PLACES}", env::var("PATH").unwrap_or_default())
}

/// Finds the programs, and installs what is missing where that can be done, saying so first.
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
    // Another test may have installed them meanwhile.
    match find() {
        Ok(programs) => Ok(programs),
        Err(packages) => {
            install(&packages)?;
            find().map_err(|packages| missing(&packages))
        }
    }
}

/// All programs, or the packages that bring the missing ones.
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
    Unavailable::Missing { missing: packages.join(", ") }
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

/// Says something that is to be read while tests run, whose `eprintln!` is kept back.
pub(super) fn tell(text: &str) {
    // Nobody who cannot be told shall fail for it.
    let _ = writeln!(io::stderr(), "{text}");
}

/// A list of packages that is too old to install from is renewed.
fn install(packages: &[&str]) -> Result<(), Unavailable> {
    let install = format!("apt-get install --yes --no-install-recommends {}", packages.join(" "));
    tell(&format!("a real node needs {}, which the tests install now: {install}", packages.join(", ")));
    let mut printed = String::new();
    for command in [&install, "apt-get update", &install] {
        let mut words = command.split(' ');
        let mut program = Command::new(words.next().unwrap_or_default());
        let ran = program.args(words).env("DEBIAN_FRONTEND", "noninteractive").output();
        let output = ran.map_err(|source| Unavailable::Io { path: PathBuf::from("apt-get"), source })?;
        if output.status.success() && command == install {
            return Ok(());
        }
        printed = String::from_utf8_lossy(&output.stderr).into_owned();
    }
    Err(Unavailable::Install { missing: packages.join(", "), command: install, output: printed })
}
