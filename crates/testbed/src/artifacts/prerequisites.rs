//! What a build needs, asked before the first one begins.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::ArtifactError;

/// Go's caches after a cold build of everything take about 6 GB.
const NEEDED_GB: u64 = 8;

/// Whether there is a Go that can build modules which ask for `version`.
pub(super) fn check_go(go: &OsStr, version: &str) -> Result<(), ArtifactError> {
    let version = version.to_owned();
    match Command::new(go).args(["env", "GOVERSION"]).output() {
        Ok(output) => {
            let found = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            if fetches_toolchains(&found) { Ok(()) } else { Err(ArtifactError::GoTooOld { found, version }) }
        }
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => Err(ArtifactError::GoMissing { version }),
        Err(source) => Err(ArtifactError::Io { path: PathBuf::from(go), source }),
    }
}

/// Whether everything can be built: in Go's caches and in ours.
pub(super) fn check_disk(go: &OsStr, cache: &Path) -> Result<(), ArtifactError> {
    let caches = Command::new(go)
        .args(["env", "GOCACHE", "GOMODCACHE"])
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    let places = caches.lines().map(PathBuf::from).chain([cache.to_owned()]);
    for at in places {
        let Some(free_gb) = free_gb(&at) else { continue };
        if free_gb < NEEDED_GB {
            return Err(ArtifactError::DiskFull { at, free_gb, needed_gb: NEEDED_GB });
        }
    }
    Ok(())
}

fn free_gb(at: &Path) -> Option<u64> {
    let existing = at.ancestors().find(|path| path.exists())?;
    let stat = rustix::fs::statvfs(existing).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize) / 1_000_000_000)
}

/// Whether this Go can be asked for a newer one: from 1.21 on it fetches what a module needs by itself. What does not look
/// like a version (a development build) is given the benefit of the doubt.
fn fetches_toolchains(version: &str) -> bool {
    let minor = version.strip_prefix("go1.").and_then(|it| it.split(['.', 'r', 'b']).next()?.parse::<u32>().ok());
    minor.is_none_or(|minor| minor >= 21)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_go_that_cannot_fetch_a_newer_one_is_too_old() {
        for (version, good) in
            [("go1.19.8", false), ("go1.20rc1", false), ("go1.21.0", true), ("go1.26.8", true), ("devel +abc", true)]
        {
            assert_eq!(fetches_toolchains(version), good, "{version}");
        }
    }
}
