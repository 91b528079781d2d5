//! The machine ID, as systemd and the kubelet know it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub(crate) enum MachineIdError {
    #[error("cannot read machine ID from {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot read machine ID from {}: the file is empty", path.display())]
    Empty { path: PathBuf },
}

pub(crate) fn read(path: &Path) -> Result<String, MachineIdError> {
    let text = fs::read_to_string(path).map_err(|source| MachineIdError::Read { path: path.to_owned(), source })?;
    match text.trim() {
        "" => Err(MachineIdError::Empty { path: path.to_owned() }),
        id => Ok(id.to_owned()),
    }
}
