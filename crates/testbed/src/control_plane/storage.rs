//! Saves and restores the data of etcd, as an administrator does after a disaster.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::{API_SERVER, ControlPlane, StartError};
use crate::process::{GRACE, Process};
use crate::readiness::await_listener;

const ETCD: &str = "etcd";

/// A copy of the data of a stopped etcd. Deleted with the run directory.
#[derive(Debug)]
pub struct EtcdSnapshot {
    path: PathBuf,
}

impl ControlPlane {
    /// Stops the API server and etcd, copies the data, and starts both again.
    pub async fn save_etcd(&self) -> Result<EtcdSnapshot, StartError> {
        self.stop_storage().await;
        let path = self.run_dir().path().join("etcd-snapshot");
        replace(&self.config.etcd_data(), &path).map_err(StartError::io(&path))?;
        self.start_storage().await?;
        Ok(EtcdSnapshot { path })
    }

    /// Stops the API server and etcd, replaces the data with an earlier copy, and starts both again. Resource versions
    /// continue from those of the copy.
    pub async fn restore_etcd(&self, snapshot: &EtcdSnapshot) -> Result<(), StartError> {
        self.stop_storage().await;
        replace(&snapshot.path, &self.config.etcd_data()).map_err(StartError::io(&snapshot.path))?;
        self.start_storage().await
    }

    async fn stop_storage(&self) {
        let stopped: Vec<Process> =
            self.servers().extract_if(.., |server| [API_SERVER, ETCD].contains(&server.name())).collect();
        // Fails only if the runtime is shutting down, which drops the servers. The API server is stopped first.
        let stop = move || stopped.into_iter().rev().for_each(|server| server.stop(GRACE));
        let _ = tokio::task::spawn_blocking(stop).await;
    }

    async fn start_storage(&self) -> Result<(), StartError> {
        let mut etcd = Process::spawn(ETCD, &mut self.config.etcd(self.numbers), &self.logs())?;
        await_listener(&mut etcd, self.numbers.etcd_client).await?;
        self.servers().insert(0, etcd);
        self.start_api_server().await
    }
}

/// Copies a directory, instead of the one that `to` may be.
fn replace(from: &Path, to: &Path) -> io::Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    copy(from, to)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if !from.is_dir() {
        return fs::copy(from, to).map(drop);
    }
    fs::create_dir_all(to)?;
    fs::set_permissions(to, fs::metadata(from)?.permissions())?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}
