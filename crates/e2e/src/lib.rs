//! Support for the tests in `tests/`, which exercise several shipped parts together.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

/// Generous, for two busy cores: no test asserts a duration.
pub const TIMEOUT: Duration = Duration::from_mins(5);

/// The root directory of the repository.
pub fn repo_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate is two levels below the root")
}

/// The content of a file, by its path relative to [`repo_root`].
///
/// # Panics
/// If the file cannot be read.
pub fn read_repo_file(path: &str) -> String {
    fs::read_to_string(repo_root().join(path)).unwrap_or_else(|error| panic!("cannot read {path}: {error}"))
}

/// A directory for a kustomization, which has to name `deploy/` by a relative path: `../../deploy`.
///
/// # Panics
/// If it cannot be created.
pub fn kustomization_dir() -> TempDir {
    // Does not exist if Cargo writes to another directory.
    let target = repo_root().join("target");
    fs::create_dir_all(&target).and_then(|()| tempfile::tempdir_in(&target)).expect("target/ is writable")
}
