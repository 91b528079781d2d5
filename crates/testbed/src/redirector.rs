//! A server that redirects every request, with a trusted certificate: what a malicious tenant could name in a kubeconfig
//! to make the controller send requests to another server.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::control_plane::{ControlPlane, StartError};
use crate::tls::acceptor;

/// A running redirector. Stops when dropped.
#[derive(Debug)]
pub struct Redirector {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Redirector {
    /// Starts a server with a certificate of the control plane's authority that redirects every request to `to`.
    pub async fn start(plane: &ControlPlane, to: &str) -> Result<Self, StartError> {
        let cannot_start = || StartError::listen("the redirector");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(cannot_start())?;
        let address = listener.local_addr().map_err(cannot_start())?;
        let tls = acceptor(&plane.authority().server(&[])?);
        let response = format!(
            "HTTP/1.1 307 Temporary Redirect\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client that disconnects is not an error of the test.
                tokio::spawn(redirect(stream, tls.clone(), response.clone()));
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

async fn redirect(stream: TcpStream, tls: TlsAcceptor, response: String) -> io::Result<()> {
    let mut stream = tls.accept(stream).await?;
    let mut request = [0; 4096];
    let _ = stream.read(&mut request).await?;
    stream.write_all(response.as_bytes()).await?;
    stream.shutdown().await
}
