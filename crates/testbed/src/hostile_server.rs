//! An API server that a malicious tenant could name in a kubeconfig: it has a trusted certificate and sends
//! anything. It attacks only the controller, so that Cluster API stays connected to the real one.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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
/// Shorter than the controller waits for a response.
const SLOW_PAGE: Duration = Duration::from_secs(8);
/// Pages of a long list.
pub const PAGES: usize = 80;

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
    /// Each watch fails within its first event.
    BrokenWatches,
    /// Lists are empty, and every other response is an object without a name.
    NamelessObjects,
    /// A long list of Nodes that all have different names, and the objects of [`Attack::NamelessObjects`].
    ManyNodes,
    /// A long list of agent configurations for different Nodes.
    ManyConfigs { node: String, provider_id: String },
    /// Each page of the list of pods is empty, takes some seconds, and has another one after it.
    SlowPages { node: String, provider_id: String },
    /// The Node that belongs to the Machine changes as often as the connection allows.
    Flood { node: String, provider_id: String },
}

/// A running server. Stops when dropped.
#[derive(Debug)]
pub struct HostileServer {
    address: SocketAddr,
    pages: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl HostileServer {
    /// Starts a server with a certificate of the control plane's authority.
    pub async fn start(plane: &ControlPlane, attack: Attack) -> Result<Self, StartError> {
        let cannot_start = || StartError::listen("the hostile server");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(cannot_start())?;
        let address = listener.local_addr().map_err(cannot_start())?;
        let (tls, attack) = (acceptor(&plane.authority().server(&[])?), Arc::new(attack));
        let pages = Arc::new(AtomicUsize::new(0));
        let sent_pages = Arc::clone(&pages);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client that disconnects is not an error of the test.
                tokio::spawn(serve(stream, tls.clone(), Arc::clone(&attack), Arc::clone(&sent_pages)));
            }
        });
        Ok(Self { address, pages, task })
    }

    /// How many pages of [`Attack::ManyConfigs`] or [`Attack::SlowPages`] have been sent.
    pub fn pages(&self) -> usize {
        self.pages.load(Ordering::Relaxed)
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

async fn serve(stream: TcpStream, tls: TlsAcceptor, attack: Arc<Attack>, pages: Arc<AtomicUsize>) -> io::Result<()> {
    if matches!(*attack, Attack::SilentHandshake) {
        return std::future::pending().await;
    }
    let mut client = Client(tls.accept(stream).await?, pages);
    while let Some(request) = client.request().await? {
        if !request.contains("5spot/") {
            return Ok(());
        }
        let path = request.split_whitespace().nth(1).unwrap_or_default();
        client.respond(path, &attack).await?;
    }
    Ok(())
}

struct Client(TlsStream<TcpStream>, Arc<AtomicUsize>);

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
            Attack::BrokenWatches if is_watch => {
                self.0.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{").await?;
                self.0.shutdown().await?;
                Err(io::ErrorKind::ConnectionAborted.into())
            }
            Attack::NamelessObjects | Attack::ManyNodes | Attack::ManyConfigs { .. } | Attack::SlowPages { .. }
                if is_watch =>
            {
                self.0.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").await?;
                self.0.flush().await?;
                std::future::pending().await
            }
            Attack::NamelessObjects if path.contains("limit=") => self.whole(200, &list("")).await,
            Attack::ManyNodes if path.contains("limit=") => self.page(path, many_nodes).await,
            Attack::NamelessObjects | Attack::ManyNodes => self.whole(200, "{}").await,
            Attack::ManyConfigs { .. } if path.contains("/configmaps?") => self.page(path, many_configs).await,
            Attack::SlowPages { .. } if path.contains("/pods?") => {
                tokio::time::sleep(SLOW_PAGE).await;
                self.page(path, |_| Vec::new()).await
            }
            Attack::ManyConfigs { node, provider_id } | Attack::SlowPages { node, provider_id } => {
                let object = managed_node(node, provider_id, 2);
                if path.contains(&format!("/nodes/{node}")) {
                    self.whole(200, &object).await
                } else {
                    self.whole(200, &list("")).await
                }
            }
            Attack::Flood { node, provider_id } if is_watch => self.flood(node, provider_id).await,
            Attack::Flood { node, provider_id } if path.contains(&format!("/nodes/{node}")) => {
                self.whole(200, &managed_node(node, provider_id, 1)).await
            }
            Attack::Flood { node, provider_id } => self.whole(200, &list(&managed_node(node, provider_id, 1))).await,
            Attack::EndlessLine | Attack::ClosedWatches | Attack::BrokenWatches | Attack::SilentHandshake => {
                if path.contains("limit=") {
                    self.whole(200, &list("")).await
                } else {
                    let status = json!({ "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404 });
                    self.whole(404, &status.to_string()).await
                }
            }
        }
    }

    /// Sends a page of a list, which says how to continue until the last one.
    async fn page(&mut self, path: &str, items: impl Fn(usize) -> Vec<String>) -> io::Result<()> {
        let number = path.split("continue=page-").nth(1).and_then(|it| it.split('&').next()?.parse().ok()).unwrap_or(0);
        let token = if number + 1 < PAGES { format!("page-{}", number + 1) } else { String::new() };
        let metadata = json!({ "resourceVersion": "1", "continue": token });
        self.whole(200, &format!("{{\"metadata\":{metadata},\"items\":[{}]}}", items(number).join(","))).await?;
        self.1.fetch_add(1, Ordering::Relaxed);
        Ok(())
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

/// As much as fits into a response, all of which the controller would keep.
fn many_nodes(page: usize) -> Vec<String> {
    let item = |it: usize| {
        let annotations = json!({ "5spot.finos.org/applied-taints": "a".repeat(3500) });
        let name = format!("n-{page}-{it}");
        json!({ "metadata": { "name": name, "uid": name, "resourceVersion": "1", "annotations": annotations } })
    };
    (0..500).map(|it| item(it).to_string()).collect()
}

fn many_configs(page: usize) -> Vec<String> {
    let item = |it: usize| {
        json!({
            "metadata": {
                "name": format!("reclaim-agent-n-{page}-{it}"), "namespace": "5spot-agent", "uid": format!("{page}-{it}"),
                "resourceVersion": "1", "labels": { "5spot.finos.org/reclaim-agent": "enabled" },
            },
            "data": { "reclaim.toml": "a".repeat(3500) },
        })
    };
    (0..500).map(|it| item(it).to_string()).collect()
}

/// PEM of an authority that has signed no certificate.
pub fn untrusted_authority() -> Result<String, StartError> {
    Ok(crate::certificates::Authority::new("untrusted")?.pem())
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
