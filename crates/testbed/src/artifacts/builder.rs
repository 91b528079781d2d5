//! Builds a Go module: under a lock, in a temporary directory that is renamed when it is complete.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::time::Instant;

use super::module::{Extra, GoModule};
use super::{ArtifactError, Progress, prerequisites};
use crate::process::spawn_child;

const UNFINISHED: &str = ".building-";
const LOCK: &str = "build.lock";
const TAIL_LINES: usize = 40;

/// Builds modules from `sources` into `cache`.
pub(super) struct Builder<'a> {
    cache: &'a Path,
    sources: &'a Path,
    go: OsString,
}

impl<'a> Builder<'a> {
    pub(super) fn new(cache: &'a Path, sources: &'a Path, go: impl Into<OsString>) -> Self {
        Self { cache, sources, go: go.into() }
    }

    /// Fails early if a missing module cannot be built: without Go, or without enough free disk.
    pub(super) fn check(&self, modules: &[&GoModule]) -> Result<(), ArtifactError> {
        for module in modules {
            if !self.cache.join(module.directory_name(self.sources)?).is_dir() {
                prerequisites::check_go(&self.go, &module.go_version(self.sources))?;
                return prerequisites::check_disk(&self.go, self.cache);
            }
        }
        Ok(())
    }

    /// Returns the module's artifact directory, and builds it if it does not exist.
    pub(super) fn ensure(
        &self,
        module: &GoModule,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<PathBuf, ArtifactError> {
        let name = module.directory_name(self.sources)?;
        let finished = self.cache.join(&name);
        if finished.is_dir() {
            return Ok(finished);
        }
        let _lock = self.lock(progress)?;
        if finished.is_dir() {
            return Ok(finished);
        }
        let started = Instant::now();
        let unfinished = self.cache.join(format!("{UNFINISHED}{name}"));
        remove_if_exists(&unfinished)?;
        fs::create_dir_all(&unfinished).map_err(ArtifactError::io(&unfinished))?;
        self.compile(module, &unfinished, progress)?;
        for name in module.symlinks {
            let link = unfinished.join(name);
            symlink(module.program, &link).map_err(ArtifactError::io(&link))?;
        }
        for extra in module.extras {
            self.copy_extra(module, extra, &unfinished)?;
        }
        fs::rename(&unfinished, &finished).map_err(ArtifactError::io(&finished))?;
        self.remove_older(module, &name);
        progress(Progress::Built { module: module.name, took: started.elapsed() });
        Ok(finished)
    }

    fn lock(&self, progress: &mut dyn FnMut(Progress)) -> Result<BuildLock, ArtifactError> {
        let path = self.cache.join(LOCK);
        let file = File::create(&path).map_err(ArtifactError::io(&path))?;
        match file.try_lock() {
            Ok(()) => Ok(BuildLock(file)),
            Err(TryLockError::WouldBlock) => {
                progress(Progress::Waiting);
                file.lock().map_err(ArtifactError::io(&path))?;
                Ok(BuildLock(file))
            }
            Err(TryLockError::Error(source)) => Err(ArtifactError::Io { path, source }),
        }
    }

    fn compile(&self, module: &GoModule, into: &Path, progress: &mut dyn FnMut(Progress)) -> Result<(), ArtifactError> {
        progress(Progress::Preparing { module: module.name });
        let listed = self.run(module, &["list", "-deps", module.package])?;
        let total = listed.lines().count();

        let program = into.join(module.program);
        let mut build = self.command(module);
        build.args(["build", "-v", "-trimpath", "-ldflags", module.ldflags, "-o"]).arg(&program).arg(module.package);
        let mut child = spawn_child(build.stdout(Stdio::null()).stderr(Stdio::piped()))
            .map_err(ArtifactError::io(Path::new(&self.go)))?;
        let mut output = Vec::new();
        let mut done = 0;
        progress(Progress::Building { module: module.name, done, total });
        for line in BufReader::new(child.stderr.take().expect("stderr is piped")).lines().map_while(Result::ok) {
            if !line.contains(' ') {
                done += 1;
                progress(Progress::Building { module: module.name, done: done.min(total), total });
            }
            output.push(line);
        }
        let status = child.wait().map_err(ArtifactError::io(Path::new(&self.go)))?;
        check(module, "go build", status, &output)
    }

    fn copy_extra(&self, module: &GoModule, extra: &Extra, into: &Path) -> Result<(), ArtifactError> {
        // The build does not download a module that no package is compiled from.
        self.run(module, &["mod", "download", extra.of_module])?;
        let listed = self.run(module, &["list", "-m", "-f", "{{.Dir}}", extra.of_module])?;
        let from = Path::new(listed.trim()).join(extra.from);
        let to = into.join(extra.to);
        if from.is_dir() {
            fs::create_dir_all(&to).map_err(ArtifactError::io(&to))?;
            for entry in fs::read_dir(&from).map_err(ArtifactError::io(&from))? {
                let entry = entry.map_err(ArtifactError::io(&from))?;
                copy_file(&entry.path(), &to.join(entry.file_name()))?;
            }
            Ok(())
        } else {
            if let Some(parent) = to.parent() {
                fs::create_dir_all(parent).map_err(ArtifactError::io(parent))?;
            }
            copy_file(&from, &to)
        }
    }

    /// Runs `go` in the module's directory and returns its standard output.
    fn run(&self, module: &GoModule, arguments: &[&str]) -> Result<String, ArtifactError> {
        let child = spawn_child(self.command(module).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()))
            .map_err(ArtifactError::io(Path::new(&self.go)))?;
        let Output { status, stdout, stderr } =
            child.wait_with_output().map_err(ArtifactError::io(Path::new(&self.go)))?;
        let lines: Vec<String> = String::from_utf8_lossy(&stderr).lines().map(str::to_owned).collect();
        check(module, &format!("go {}", arguments.join(" ")), status, &lines)?;
        Ok(String::from_utf8_lossy(&stdout).into_owned())
    }

    fn command(&self, module: &GoModule) -> Command {
        let mut command = Command::new(&self.go);
        command
            .current_dir(self.sources.join(module.name))
            .env("CGO_ENABLED", "0")
            // The caller's workspace file and flags must not change the build.
            .env("GOWORK", "off")
            .env("GOFLAGS", "")
            .stdin(Stdio::null());
        command
    }

    /// Removes older builds of the same module. Errors are ignored: they only cost disk space.
    fn remove_older(&self, module: &GoModule, current: &str) {
        let prefix = format!("{}-", module.name);
        for entry in fs::read_dir(self.cache).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if name.starts_with(&prefix) && name != current {
                let _ = remove_if_exists(&entry.path());
            }
        }
    }
}

/// The held build lock. Closing the file is not enough: a child that another thread is starting holds a copy of the
/// descriptor until it calls exec.
struct BuildLock(File);

impl Drop for BuildLock {
    fn drop(&mut self) {
        // Fails only if the file is no longer open.
        let _ = self.0.unlock();
    }
}

/// Removes the directories of killed builds, unless a build is in progress.
pub(super) fn remove_unfinished(cache: &Path) {
    let unfinished: Vec<PathBuf> = fs::read_dir(cache)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(UNFINISHED))
        .map(|entry| entry.path())
        .collect();
    if unfinished.is_empty() {
        return;
    }
    let Ok(lock) = File::create(cache.join(LOCK)) else { return };
    if lock.try_lock().is_ok() {
        let _lock = BuildLock(lock);
        for directory in unfinished {
            let _ = remove_if_exists(&directory);
        }
    }
}

fn check(module: &GoModule, command: &str, status: ExitStatus, output: &[String]) -> Result<(), ArtifactError> {
    if status.success() {
        return Ok(());
    }
    let tail = &output[output.len().saturating_sub(TAIL_LINES)..];
    Err(ArtifactError::BuildFailed {
        module: module.name,
        command: format!("{command} ({status})"),
        tail: tail.join("\n"),
    })
}

/// Copies the content only: files in the module cache are read-only, and a read-only copy could not be removed.
fn copy_file(from: &Path, to: &Path) -> Result<(), ArtifactError> {
    let content = fs::read(from).map_err(ArtifactError::io(from))?;
    fs::write(to, content).map_err(ArtifactError::io(to))
}

fn remove_if_exists(directory: &Path) -> Result<(), ArtifactError> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(ArtifactError::Io { path: directory.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    const TOY: GoModule = GoModule {
        name: "toy",
        package: ".",
        program: "toy",
        symlinks: &["toy-server"],
        ldflags: "-s",
        extras: &[Extra { of_module: "example.org/dep", from: "stages", to: "stages" }],
    };

    /// A module to build with the fake `go` in `testdata`.
    struct TestModule {
        root: tempfile::TempDir,
    }

    impl TestModule {
        fn new(build: &str) -> Self {
            let root = tempfile::tempdir().unwrap();
            let at = |name: &str| root.path().join(name);
            for directory in ["cache", "go/toy", "dep/stages"] {
                fs::create_dir_all(at(directory)).unwrap();
            }
            fs::write(at("go/toy/go.mod"), "module toy\n\ngo 1.99.0\n").unwrap();
            fs::write(at("go/toy/go.sum"), "").unwrap();
            fs::write(at("dep/stages/one.yaml"), "one").unwrap();
            fs::write(at("build.sh"), build).unwrap();
            Self { root }
        }

        fn cache(&self) -> PathBuf {
            self.root.path().join("cache")
        }

        fn ensure(&self, progress: &mut dyn FnMut(Progress)) -> Result<PathBuf, ArtifactError> {
            self.ensure_with(Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/go"), progress)
        }

        fn ensure_with(&self, go: PathBuf, progress: &mut dyn FnMut(Progress)) -> Result<PathBuf, ArtifactError> {
            let (cache, sources) = (self.cache(), self.root.path().join("go"));
            let builder = Builder::new(&cache, &sources, go);
            builder.check(&[&TOY])?;
            builder.ensure(&TOY, progress)
        }

        fn directories(&self) -> Vec<String> {
            let entries = fs::read_dir(self.cache()).unwrap().map(|entry| entry.unwrap());
            let directories = entries.filter(|entry| entry.path().is_dir());
            directories.map(|entry| entry.file_name().into_string().unwrap()).collect()
        }
    }

    const WRITES_PROGRAM: &str = "echo program > \"$program\"";

    #[test]
    fn builds_once_with_links_and_extras() {
        let module = TestModule::new(WRITES_PROGRAM);
        let mut steps = Vec::new();
        let built = module.ensure(&mut |step| steps.push(step)).unwrap();
        assert_eq!(fs::read_to_string(built.join("toy-server")).unwrap(), "program\n");
        assert_eq!(fs::read_to_string(built.join("stages/one.yaml")).unwrap(), "one");
        assert!(steps.contains(&Progress::Building { module: "toy", done: 2, total: 3 }));
        assert!(matches!(steps.last(), Some(Progress::Built { .. })));

        let no_go = module.root.path().join("absent");
        let again = module.ensure_with(no_go, &mut |step| panic!("built again: {step:?}")).unwrap();
        assert_eq!(again, built);
    }

    #[test]
    fn failed_build_reports_output_and_leaves_no_artifact() {
        let module = TestModule::new("echo 'toy.go:1: no such thing' >&2; exit 1");
        let error = module.ensure(&mut |_| {}).unwrap_err();
        assert!(error.to_string().contains("no such thing"), "{error}");
        assert!(module.directories().iter().all(|name| name.starts_with(UNFINISHED)));
        remove_unfinished(&module.cache());
        assert!(module.directories().is_empty());
    }

    #[test]
    fn leftover_of_killed_build_is_rebuilt() {
        let module = TestModule::new(WRITES_PROGRAM);
        let name = TOY.directory_name(&module.root.path().join("go")).unwrap();
        let leftover = module.cache().join(format!("{UNFINISHED}{name}"));
        fs::create_dir_all(&leftover).unwrap();
        fs::write(leftover.join("toy-server"), "half").unwrap();
        let built = module.ensure(&mut |_| {}).unwrap();
        assert_eq!(fs::read_to_string(built.join("toy-server")).unwrap(), "program\n");
        assert!(!leftover.exists());
    }

    #[test]
    fn new_build_removes_older_one() {
        let module = TestModule::new(WRITES_PROGRAM);
        let old = module.ensure(&mut |_| {}).unwrap();
        fs::write(module.root.path().join("go/toy/go.sum"), "changed").unwrap();
        let new = module.ensure(&mut |_| {}).unwrap();
        assert_ne!(old, new);
        assert!(!old.exists() && new.exists());
    }

    #[test]
    fn missing_go_error_names_required_version() {
        let module = TestModule::new(WRITES_PROGRAM);
        let error = module.ensure_with(module.root.path().join("absent"), &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains("Go 1.99.0"), "{error}");
    }

    #[test]
    fn second_process_reports_waiting_for_the_lock() {
        let module = TestModule::new(WRITES_PROGRAM);
        let held = File::create(module.cache().join(LOCK)).unwrap();
        held.lock().unwrap();
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            let second = scope.spawn(|| module.ensure(&mut |step| sender.send(step).unwrap()));
            assert_eq!(receiver.recv().unwrap(), Progress::Waiting);
            held.unlock().unwrap();
            second.join().unwrap().unwrap();
        });
    }
}
