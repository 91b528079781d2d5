//! Which machine this is, as systemd and the kubelet know it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Why the machine cannot be told from others.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IdentityError {
    #[error("{}: {source}", path.display())]
    Unread { path: PathBuf, source: io::Error },
    #[error("{}: it is empty", path.display())]
    Empty { path: PathBuf },
}

/// The identity in this file.
pub(crate) fn read(path: &Path) -> Result<String, IdentityError> {
    let text = fs::read_to_string(path).map_err(|source| IdentityError::Unread { path: path.to_owned(), source })?;
    match text.trim() {
        "" => Err(IdentityError::Empty { path: path.to_owned() }),
        id => Ok(id.to_owned()),
    }
}
