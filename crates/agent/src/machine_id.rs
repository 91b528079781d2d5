//! The machine ID, as systemd and the kubelet know it.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// A machine ID has 32 characters.
const MAX_BYTES: u64 = 4096;

#[derive(Debug, thiserror::Error)]
pub(crate) enum MachineIdError {
    #[error("cannot read machine ID from {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot read machine ID from {}: the file is empty", path.display())]
    Empty { path: PathBuf },
}

pub(crate) fn read(path: &Path) -> Result<String, MachineIdError> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text));
    read.map_err(|source| MachineIdError::Read { path: path.to_owned(), source })?;
    match text.trim() {
        "" => Err(MachineIdError::Empty { path: path.to_owned() }),
        id => Ok(id.to_owned()),
    }
}
