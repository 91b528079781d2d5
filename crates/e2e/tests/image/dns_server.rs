//! A DNS server that resolves one name, as the cluster DNS resolves the API server.

use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use tokio::net::UdpSocket;

/// Resolves to `127.0.0.1`; every other name does not exist.
pub(crate) const SERVICE: &str = "kubernetes.default.svc.cluster.local";

/// Length of the header, which the question follows: the name, its type and its class.
const HEADER: usize = 12;
const TYPE_AND_CLASS: usize = 4;
const TYPE_A: [u8; 2] = [0, 1];

/// Runs until the test's runtime shuts down.
pub(crate) struct DnsServer {
    pub(crate) address: Ipv4Addr,
    /// The names of all queries.
    pub(crate) queries: Arc<Mutex<Vec<String>>>,
}

impl DnsServer {
    /// Starts a server on port 53 of a separate loopback address: `resolv.conf` cannot specify a port. Without the
    /// permission to bind it, prints so and returns `None`; with `CI` set it panics.
    pub(crate) async fn start() -> Option<Self> {
        let [.., high, low] = std::process::id().to_be_bytes();
        let address = Ipv4Addr::new(127, 53, high, low);
        let socket = match UdpSocket::bind((address, 53)).await {
            Err(error) if error.kind() == ErrorKind::PermissionDenied && std::env::var_os("CI").is_none() => {
                eprintln!("skipped: port 53 needs root or sysctl net.ipv4.ip_unprivileged_port_start=53");
                return None;
            }
            bound => bound.unwrap(),
        };
        let queries = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&queries);
        tokio::spawn(async move {
            let mut query = [0; 512];
            loop {
                let (length, from) = socket.recv_from(&mut query).await.unwrap();
                let (name, response) = respond(&query[..length]);
                log.lock().unwrap().push(name);
                socket.send_to(&response, from).await.unwrap();
            }
        });
        Some(DnsServer { address, queries })
    }
}

/// The queried name and the response.
fn respond(query: &[u8]) -> (String, Vec<u8>) {
    let mut labels = Vec::new();
    let mut at = HEADER;
    while query[at] != 0 {
        let label = &query[at + 1..=at + usize::from(query[at])];
        labels.push(String::from_utf8(label.to_vec()).unwrap());
        at += 1 + label.len();
    }
    let question = &query[HEADER..at + 1 + TYPE_AND_CLASS];
    let name = labels.join(".");
    let exists = name == SERVICE;
    let has_address = exists && question[question.len() - TYPE_AND_CLASS..].starts_with(&TYPE_A);

    let mut response = query[..2].to_vec();
    // Flags: response, recursion desired and available; NOERROR or NXDOMAIN.
    response.extend([0x81, if exists { 0x80 } else { 0x83 }]);
    response.extend([0, 1, 0, u8::from(has_address), 0, 0, 0, 0]);
    response.extend(question);
    if has_address {
        // Pointer to the name in the question, type A, class IN, TTL 60 s, length 4.
        response.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        response.extend(Ipv4Addr::LOCALHOST.octets());
    }
    (name, response)
}
