//! Waiting for a server that was just started: until it serves, until it ends, or until patience does.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use kube::{Client, Config};

use crate::control_plane::StartError;
use crate::process::Process;

/// Two noisy cores may start several control planes at once.
const READY_WITHIN: Duration = Duration::from_mins(2);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A stranger who takes a port between our choosing and a server's binding it is rare; five of them are a broken
/// machine.
pub(crate) const ATTEMPTS: usize = 5;

/// Looks until `probe` is content, the server ends, or the time is up.
pub(crate) async fn await_start<P>(server: &mut Process, mut probe: P) -> Result<(), StartError>
where
    P: AsyncFnMut() -> Result<(), String>,
{
    let until = Instant::now() + READY_WITHIN;
    loop {
        server.check_alive()?;
        match probe().await {
            Ok(()) => return Ok(()),
            Err(seen) if Instant::now() > until => {
                return Err(StartError::NotReady {
                    name: server.name().to_owned(),
                    seen,
                    log: server.log().to_owned(),
                });
            }
            Err(_) => tokio::time::sleep(LOOK_EVERY).await,
        }
    }
}

/// Until someone listens on a loopback port.
pub(crate) async fn await_listener(server: &mut Process, port: u16) -> Result<(), StartError> {
    await_start(server, async || match TcpStream::connect(("127.0.0.1", port)) {
        Ok(_) => Ok(()),
        Err(refused) => Err(refused.to_string()),
    })
    .await
}

/// Until a path is answered with success.
pub(crate) async fn await_success(server: &mut Process, client: &Client, path: &str) -> Result<(), StartError> {
    await_start(server, async || {
        let request = http::Request::get(path).body(Vec::new()).expect("a path alone is a valid request");
        client.request_text(request).await.map(drop).map_err(|error| error.to_string())
    })
    .await
}

/// A client for a server's own health endpoint: plain HTTP on a loopback port.
pub(crate) fn plain_client(port: u16) -> Client {
    let address = format!("http://127.0.0.1:{port}").parse().expect("a port number makes a valid address");
    Client::try_from(Config::new(address)).expect("a plain address makes a valid client")
}
