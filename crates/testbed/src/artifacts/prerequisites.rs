//! Checks before the first build: Go and free disk space.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::ArtifactError;

/// A cold build of everything leaves about 6 GB in Go's caches.
const NEEDED_GB: u64 = 8;

/// Fails unless there is a Go that can build modules that require `version`.
pub(super) fn check_go(go: &OsStr, version: &str) -> Result<(), ArtifactError> {
    let version = version.to_owned();
    match Command::new(go).args(["env", "GOVERSION"]).output() {
        Ok(output) => {
            let found = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            if downloads_toolchains(&found) { Ok(()) } else { Err(ArtifactError::GoTooOld { found, version }) }
        }
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => Err(ArtifactError::GoMissing { version }),
        Err(source) => Err(ArtifactError::Io { path: PathBuf::from(go), source }),
    }
}

/// Fails unless Go's caches and the testbed's cache have enough free disk space.
pub(super) fn check_disk(go: &OsStr, cache: &Path) -> Result<(), ArtifactError> {
    let caches = Command::new(go)
        .args(["env", "GOCACHE", "GOMODCACHE"])
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    let directories = caches.lines().map(PathBuf::from).chain([cache.to_owned()]);
    for at in directories {
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

/// Whether this Go downloads a newer toolchain if a module requires one, which it does from 1.21 on. Anything that does not
/// look like a version (a development build) is assumed to.
fn downloads_toolchains(version: &str) -> bool {
    let minor = version.strip_prefix("go1.").and_then(|it| it.split(['.', 'r', 'b']).next()?.parse::<u32>().ok());
    minor.is_none_or(|minor| minor >= 21)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_without_toolchain_download_is_too_old() {
        for (version, good) in
            [("go1.19.8", false), ("go1.20rc1", false), ("go1.21.0", true), ("go1.26.8", true), ("devel +abc", true)]
        {
            assert_eq!(downloads_toolchains(version), good, "{version}");
        }
    }
}
