//! Images with one static program in them, made without a container engine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::control_plane::StartError;
use crate::product::shipped;

/// A program that does nothing until it is told to end.
const SLEEPER: &str = include_str!("sleeper.rs");

/// An image: its name, and the program that is its `/<file name>` and its entry point.
#[derive(Debug, Clone)]
pub struct Image {
    name: String,
    program: PathBuf,
    called: String,
}

impl Image {
    /// An image of this name with a static program in it, under the name of its file.
    pub fn of(name: &str, program: &Path) -> Self {
        let called = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Self { name: name.to_owned(), program: program.to_owned(), called }
    }

    /// An image with a program of this name that sleeps.
    pub fn sleeper(name: &str, called: &str) -> Result<Self, StartError> {
        Ok(Self { name: name.to_owned(), program: sleeper()?, called: called.to_owned() })
    }

    /// What a pod calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Writes it as `docker save` does.
    pub(super) fn write(&self, archive: &Path) -> Result<(), StartError> {
        let io = StartError::io;
        let directory = tempfile::tempdir_in(archive.parent().unwrap_or(archive)).map_err(io(archive))?;
        let at = |name: &str| directory.path().join(name);
        let root = at("root");
        fs::create_dir(&root).map_err(io(&root))?;
        fs::copy(&self.program, root.join(&self.called)).map_err(io(&self.program))?;
        tar(&at("layer.tar"), &root, &[&self.called])?;
        let layer = fs::read(at("layer.tar")).map_err(io(archive))?;
        let digest = Sha256::digest(&layer).iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": { "Entrypoint": [format!("/{}", self.called)] },
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
    super::run_here("packing an image", command.args(files)).map(drop)
}

/// A static program that sleeps, to be copied under the name that it shall have. It is built once.
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
    // In the repository, so that its compiler is the one that is asked.
    super::run_here("building a program that sleeps", command.arg(&unfinished).arg(&source).current_dir(shipped("")))?;
    // Renamed into place: another test may be doing the same.
    fs::rename(&unfinished, &finished).map_err(StartError::io(&finished))?;
    Ok(finished)
}

/// A program of this repository as its image has it, static, though not optimised: the Dockerfile's flags, and a target
/// directory of its own, in which nothing is built twice.
pub fn static_program(name: &str) -> Result<PathBuf, StartError> {
    let path = shipped("Dockerfile");
    let dockerfile = fs::read_to_string(&path).map_err(StartError::io(&path))?;
    let flags = dockerfile.split_once("RUSTFLAGS=\"").and_then(|(_, rest)| rest.split(" --remap").next());
    let problem = "no RUSTFLAGS are set in it".to_owned();
    let flags = flags.ok_or(StartError::Manifest { path, problem })?.to_owned();
    let version = super::run_here("asking the compiler", Command::new("rustc").arg("-vV").current_dir(shipped("")))?;
    let host = version.lines().find_map(|it| it.strip_prefix("host: ")).unwrap_or_default();
    let target = shipped("target/static");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // A target that is named keeps the flags away from build scripts, which cannot be static.
    command.args(["build", "--quiet", "--locked", "--bin", name, "--target", host, "--target-dir"]).arg(&target);
    command.current_dir(shipped("")).env("RUSTFLAGS", flags);
    super::run_here(&format!("building {name}"), &mut command)?;
    Ok(target.join(host).join("debug").join(name))
}
