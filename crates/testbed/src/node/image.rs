//! Builds images that contain one static program, without a container engine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::control_plane::StartError;
use crate::install::repo_path;

/// A program that sleeps until it is killed.
const SLEEPER: &str = include_str!("sleeper.rs");

/// An image whose entry point is one static program.
#[derive(Debug, Clone)]
pub struct Image {
    name: String,
    program: PathBuf,
    /// The file name of the program in the image.
    file_name: String,
}

impl Image {
    /// An image that contains `program` under its own file name.
    pub fn of(name: &str, program: &Path) -> Self {
        let file_name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Self { name: name.to_owned(), program: program.to_owned(), file_name }
    }

    /// An image with a sleeping program called `file_name`.
    pub fn sleeper(name: &str, file_name: &str) -> Result<Self, StartError> {
        Ok(Self { name: name.to_owned(), program: sleeper()?, file_name: file_name.to_owned() })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Writes the image in the format of `docker save`.
    pub(super) fn write(&self, archive: &Path) -> Result<(), StartError> {
        let io = StartError::io;
        let directory = tempfile::tempdir_in(archive.parent().unwrap_or(archive)).map_err(io(archive))?;
        let at = |name: &str| directory.path().join(name);
        let root = at("root");
        fs::create_dir(&root).map_err(io(&root))?;
        fs::copy(&self.program, root.join(&self.file_name)).map_err(io(&self.program))?;
        tar(&at("layer.tar"), &root, &[&self.file_name])?;
        let layer = fs::read(at("layer.tar")).map_err(io(archive))?;
        let digest = Sha256::digest(&layer).iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": { "Entrypoint": [format!("/{}", self.file_name)] },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{digest}")] },
        });
        let manifest = json!([{ "Config": "config.json", "RepoTags": [self.name], "Layers": ["layer.tar"] }]);
        for (file, content) in [("config.json", config), ("manifest.json", manifest)] {
            fs::write(at(file), content.to_string()).map_err(io(archive))?;
        }
        tar(archive, directory.path(), &["manifest.json", "config.json", "layer.tar"])
    }
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn tar(archive: &Path, directory: &Path, files: &[&str]) -> Result<(), StartError> {
    let mut command = Command::new("tar");
    command.args(["--create", "--owner=0", "--group=0", "--file"]).arg(archive).arg("--directory").arg(directory);
    super::run_blocking("pack an image", command.args(files)).map(drop)
}

/// The path of a static program that sleeps, to be copied under another name. Built by the first call.
pub fn sleeper() -> Result<PathBuf, StartError> {
    let cache = crate::artifacts::cache_directory()?;
    let digest = Sha256::digest(SLEEPER);
    let finished = cache.join(format!("sleeper-{:02x}{:02x}{:02x}{:02x}", digest[0], digest[1], digest[2], digest[3]));
    if finished.exists() {
        return Ok(finished);
    }
    let directory = tempfile::tempdir_in(&cache).map_err(StartError::io(&cache))?;
    let (source, unfinished) = (directory.path().join("sleeper.rs"), directory.path().join("sleeper"));
    fs::write(&source, SLEEPER).map_err(StartError::io(&source))?;
    let mut command = Command::new("rustc");
    command.args(["--edition=2024", "-Copt-level=s", "-Cstrip=symbols", "-Ctarget-feature=+crt-static", "-o"]);
    // The working directory selects the toolchain of the repository.
    super::run_blocking("build the sleeper", command.arg(&unfinished).arg(&source).current_dir(repo_path("")))?;
    // Renamed into place, because another test may be building it too.
    fs::rename(&unfinished, &finished).map_err(StartError::io(&finished))?;
    Ok(finished)
}

/// Builds a program of this repository statically, with the Dockerfile's flags but without optimisation, and returns its
/// path. It has its own target directory, because other flags would rebuild the dependencies each time.
pub fn static_program(name: &str) -> Result<PathBuf, StartError> {
    let path = repo_path("Dockerfile");
    let dockerfile = fs::read_to_string(&path).map_err(StartError::io(&path))?;
    let flags = dockerfile.split_once("RUSTFLAGS=\"").and_then(|(_, rest)| rest.split(" --remap").next());
    let flags = flags.ok_or(StartError::NoRustFlags { path })?.to_owned();
    let mut version = Command::new("rustc");
    let version = super::run_blocking("run rustc -vV", version.arg("-vV").current_dir(repo_path("")))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
    let target = repo_path("target/static");
    let binary = target.join(host).join("debug").join(name);
    if !binary.exists() {
        super::packages::print(&format!("testbed: building a static {name} (first run only, takes minutes)"));
    }
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // With an explicit target the flags do not apply to build scripts, which cannot be static.
    command.args(["build", "--quiet", "--locked", "--bin", name, "--target", host, "--target-dir"]).arg(&target);
    command.current_dir(repo_path("")).env("RUSTFLAGS", flags);
    super::run_blocking(&format!("build {name}"), &mut command)?;
    Ok(binary)
}
