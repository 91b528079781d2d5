//! Waits until a server that was just started is ready.

use std::error::Error;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use kube::{Client, Config};

use crate::control_plane::StartError;
use crate::process::Process;

/// Long enough to start several control planes at the same time on two busy cores.
const READY_TIMEOUT: Duration = Duration::from_mins(2);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How often a server is started with other ports. It is rare that another program takes a claimed port; five times in a
/// row something else is wrong.
pub(crate) const ATTEMPTS: usize = 5;

/// Waits until `probe` succeeds. Fails if the server exits or the timeout expires.
pub(crate) async fn await_start<P, E>(server: &mut Process, mut probe: P) -> Result<(), StartError>
where
    P: AsyncFnMut() -> Result<(), E>,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let deadline = Instant::now() + READY_TIMEOUT;
    loop {
        server.check_alive()?;
        match probe().await {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() > deadline => {
                let (name, log) = (server.name().to_owned(), server.log().to_owned());
                return Err(StartError::NotReady { name, log, source: error.into() });
            }
            Err(_) => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

/// Waits until the server accepts connections on a loopback port.
pub(crate) async fn await_listener(server: &mut Process, port: u16) -> Result<(), StartError> {
    await_start(server, async || TcpStream::connect(("127.0.0.1", port)).map(drop)).await
}

/// Waits until a GET of `path` succeeds.
pub(crate) async fn await_success(server: &mut Process, client: &Client, path: &str) -> Result<(), StartError> {
    await_start(server, async || {
        let request = http::Request::get(path).body(Vec::new()).expect("a path alone is a valid request");
        client.request_text(request).await.map(drop)
    })
    .await
}

/// A client for the health endpoint of a server: plain HTTP on a loopback port.
pub(crate) fn plain_client(port: u16) -> Client {
    let address = format!("http://127.0.0.1:{port}").parse().expect("a port number makes a valid address");
    Client::try_from(Config::new(address)).expect("a plain address makes a valid client")
}
