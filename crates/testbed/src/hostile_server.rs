//! An API server that a malicious tenant could name in a kubeconfig: it has a trusted certificate and sends
//! anything. It attacks only the controller, so that Cluster API stays connected to the real one.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::control_plane::{ControlPlane, StartError};
use crate::tls::acceptor;

/// Pause of the attacks that send slowly.
const SLOWLY: Duration = Duration::from_millis(200);

/// What the server does to a client.
#[derive(Clone, Debug)]
pub enum Attack {
    /// The list of Nodes does not end.
    EndlessBody,
    /// The same, one byte per chunk.
    TinyChunks,
    /// The first event of the watch does not end.
    EndlessLine,
    /// Every page of the list has another one after it.
    EndlessPages,
    /// A page with as many objects of a few bytes as fit into the response.
    ManyItems,
    /// A Node with very long strings and lists.
    LongStrings,
    /// A response nested 10,000 levels deep.
    DeepNesting,
    /// Status 403 with a long text, on each attempt.
    LongError,
    /// A header that does not end.
    EndlessHeader,
    /// One byte of the list at a time, for ever.
    SlowBody,
    /// No response to the TLS handshake.
    SilentHandshake,
    /// Each watch is closed when it starts.
    ClosedWatches,
    /// The Node that belongs to the Machine changes as often as the connection allows.
    Flood { node: String, provider_id: String },
}

/// A running server. Stops when dropped.
#[derive(Debug)]
pub struct HostileServer {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl HostileServer {
    /// Starts a server with a certificate of the control plane's authority.
    pub async fn start(plane: &ControlPlane, attack: Attack) -> Result<Self, StartError> {
        let cannot_start = || StartError::listen("the hostile server");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(cannot_start())?;
        let address = listener.local_addr().map_err(cannot_start())?;
        let (tls, attack) = (acceptor(&plane.authority().server(&[])?), Arc::new(attack));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client that disconnects is not an error of the test.
                tokio::spawn(serve(stream, tls.clone(), Arc::clone(&attack)));
            }
        });
        Ok(Self { address, task })
    }

    /// `https://127.0.0.1:<port>`.
    pub fn server(&self) -> String {
        format!("https://{}", self.address)
    }
}

impl Drop for HostileServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(stream: TcpStream, tls: TlsAcceptor, attack: Arc<Attack>) -> io::Result<()> {
    if matches!(*attack, Attack::SilentHandshake) {
        return std::future::pending().await;
    }
    let mut client = Client(tls.accept(stream).await?);
    while let Some(request) = client.request().await? {
        if !request.contains("5spot/") {
            return Ok(());
        }
        let path = request.split_whitespace().nth(1).unwrap_or_default();
        client.respond(path, &attack).await?;
    }
    Ok(())
}

struct Client(TlsStream<TcpStream>);

impl Client {
    /// The next request line and headers; `None` if the client disconnected. Bodies of requests are not read: those of
    /// the controller fit into the buffer.
    async fn request(&mut self) -> io::Result<Option<String>> {
        let mut buffer = vec![0; 64 * 1024];
        let mut len = 0;
        loop {
            let read = self.0.read(&mut buffer[len..]).await?;
            if read == 0 {
                return Ok(None);
            }
            len += read;
            if buffer[..len].windows(4).any(|it| it == b"\r\n\r\n") {
                return Ok(Some(String::from_utf8_lossy(&buffer[..len]).to_lowercase()));
            }
        }
    }

    async fn respond(&mut self, path: &str, attack: &Attack) -> io::Result<()> {
        let is_watch = path.contains("watch=true");
        match attack {
            Attack::EndlessBody => self.endless("{\"items\":[", &node("n", &json!({})), ",").await,
            Attack::TinyChunks => {
                self.0.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await?;
                self.repeat("1\r\n \r\n").await
            }
            Attack::EndlessLine if is_watch => self.endless("{\"type\":\"ADDED\",\"object\":\"", "", "a").await,
            Attack::EndlessPages => {
                let nodes: Vec<String> = (0..500).map(|it| node(&format!("n-{it}"), &json!({}))).collect();
                let list = format!(
                    "{{\"metadata\":{{\"resourceVersion\":\"1\",\"continue\":\"more\"}},\"items\":[{}]}}",
                    nodes.join(",")
                );
                self.whole(200, &list).await
            }
            Attack::ManyItems => {
                let items = "{},".repeat(600_000);
                self.whole(200, &format!("{{\"metadata\":{{\"resourceVersion\":\"1\"}},\"items\":[{items}{{}}]}}"))
                    .await
            }
            Attack::LongStrings => {
                let long = "a".repeat(16 * 1024);
                let taints: Vec<Value> = (0..20).map(|_| json!({ "key": long, "effect": long })).collect();
                let nodes: Vec<String> = (0..8).map(|it| node(&format!("n-{it}"), &json!(taints))).collect();
                self.whole(200, &list(&nodes.join(","))).await
            }
            Attack::DeepNesting => {
                let nested = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
                let node = format!(
                    "{{\"metadata\":{{\"name\":\"n\",\"managedFields\":{nested}}},\"spec\":{{\"taints\":{nested}}}}}"
                );
                self.whole(200, &list(&node)).await
            }
            Attack::LongError => {
                let message = "FOREIGN-TEXT ".repeat(3000);
                let status = json!({ "kind": "Status", "status": "Failure", "message": message, "code": 403 });
                self.whole(403, &status.to_string()).await
            }
            Attack::EndlessHeader => {
                self.0.write_all(b"HTTP/1.1 200 OK\r\nX-Long: ").await?;
                self.repeat("a").await
            }
            Attack::SlowBody => {
                self.0.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"items\":[").await?;
                loop {
                    self.0.write_all(b" ").await?;
                    self.0.flush().await?;
                    tokio::time::sleep(SLOWLY).await;
                }
            }
            Attack::ClosedWatches if is_watch => self.whole(200, "").await,
            Attack::Flood { node, provider_id } if is_watch => self.flood(node, provider_id).await,
            Attack::Flood { node, provider_id } if path.contains(&format!("/nodes/{node}")) => {
                self.whole(200, &managed_node(node, provider_id, 1)).await
            }
            Attack::Flood { node, provider_id } => self.whole(200, &list(&managed_node(node, provider_id, 1))).await,
            Attack::EndlessLine | Attack::ClosedWatches | Attack::SilentHandshake => self.whole(200, &list("")).await,
        }
    }

    async fn whole(&mut self, code: u16, body: &str) -> io::Result<()> {
        let head =
            format!("HTTP/1.1 {code} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        self.0.write_all(head.as_bytes()).await?;
        self.0.write_all(body.as_bytes()).await?;
        self.0.flush().await
    }

    /// Sends `start`, then `first`, then `separator` and `first` for ever.
    async fn endless(&mut self, start: &str, item: &str, separator: &str) -> io::Result<()> {
        self.0.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").await?;
        self.0.write_all(format!("{start}{item}").as_bytes()).await?;
        self.repeat(&format!("{separator}{item}")).await
    }

    async fn repeat(&mut self, text: &str) -> io::Result<()> {
        let chunk = text.repeat(64 * 1024 / text.len());
        loop {
            self.0.write_all(chunk.as_bytes()).await?;
        }
    }

    async fn flood(&mut self, node: &str, provider_id: &str) -> io::Result<()> {
        self.0.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").await?;
        for version in 2.. {
            let object = managed_node(node, provider_id, version);
            self.0.write_all(format!("{{\"type\":\"MODIFIED\",\"object\":{object}}}\n").as_bytes()).await?;
        }
        Ok(())
    }
}

fn list(items: &str) -> String {
    format!("{{\"metadata\":{{\"resourceVersion\":\"1\"}},\"items\":[{items}]}}")
}

fn node(name: &str, taints: &Value) -> String {
    let taints = taints.as_array().cloned().unwrap_or_default();
    json!({ "metadata": { "name": name, "uid": name, "resourceVersion": "1" }, "spec": { "taints": taints } })
        .to_string()
}

/// A Node that is Ready in every other version.
fn managed_node(name: &str, provider_id: &str, version: u64) -> String {
    let ready = if version.is_multiple_of(2) { "True" } else { "False" };
    json!({
        "metadata": { "name": name, "uid": name, "resourceVersion": version.to_string() },
        "spec": { "providerID": provider_id },
        "status": { "conditions": [{ "type": "Ready", "status": ready }] },
    })
    .to_string()
}
