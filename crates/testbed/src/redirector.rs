//! A server that has a control plane's certificate and sends everybody elsewhere: what a tenant could put behind a
//! kubeconfig to have somebody else's requests sent where they should not go.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::control_plane::{ControlPlane, StartError};
use crate::tls::acceptor;

/// A running redirector. It ends when dropped.
#[derive(Debug)]
pub struct Redirector {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Redirector {
    /// Starts one under the authority of a control plane, which sends every request to `to`.
    pub async fn start(plane: &ControlPlane, to: &str) -> Result<Self, StartError> {
        let here = std::path::Path::new("the redirector");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(StartError::io(here))?;
        let address = listener.local_addr().map_err(StartError::io(here))?;
        let tls = acceptor(&plane.authority().server(&[])?);
        let answer = format!(
            "HTTP/1.1 307 Temporary Redirect\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client that goes away is its own business.
                tokio::spawn(send_elsewhere(stream, tls.clone(), answer.clone()));
            }
        });
        Ok(Self { address, task })
    }

    /// `https://127.0.0.1:<port>`.
    pub fn server(&self) -> String {
        format!("https://{}", self.address)
    }
}

impl Drop for Redirector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn send_elsewhere(stream: TcpStream, tls: TlsAcceptor, answer: String) -> io::Result<()> {
    let mut stream = tls.accept(stream).await?;
    let mut request = [0; 4096];
    let _ = stream.read(&mut request).await?;
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}
