//! A name server that knows one name, as that of a cluster knows the API server's.

use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use tokio::net::UdpSocket;

/// The name that it knows, for `127.0.0.1`.
pub(crate) const SERVICE: &str = "kubernetes.default.svc.cluster.local";

/// A query has a header of this length, then the name,
const HEADER: usize = 12;
/// then these.
const TYPE_AND_CLASS: usize = 4;
const TYPE_A: [u8; 2] = [0, 1];

/// It answers as long as the runtime of the test lives.
pub(crate) struct NameServer {
    pub(crate) address: Ipv4Addr,
    /// The names that it was asked for.
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
}

impl NameServer {
    /// Starts one, at a loopback address of its own: `resolv.conf` cannot name a port, so it has to be 53, which not
    /// everybody may take. `None`, told on standard error, for those who may not; CI may.
    pub(crate) async fn start() -> Option<Self> {
        let [.., high, low] = std::process::id().to_be_bytes();
        let address = Ipv4Addr::new(127, 53, high, low);
        let socket = match UdpSocket::bind((address, 53)).await {
            Err(error) if error.kind() == ErrorKind::PermissionDenied && std::env::var_os("CI").is_none() => {
                eprintln!("not tested: port 53 is for root, or needs sysctl net.ipv4.ip_unprivileged_port_start=53");
                return None;
            }
            bound => bound.unwrap(),
        };
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&asked);
        tokio::spawn(async move {
            let mut query = [0; 512];
            loop {
                let (length, from) = socket.recv_from(&mut query).await.unwrap();
                let (name, answer) = answer(&query[..length]);
                heard.lock().unwrap().push(name);
                socket.send_to(&answer, from).await.unwrap();
            }
        });
        Some(NameServer { address, asked })
    }
}

/// The name that is asked for, and the answer.
fn answer(query: &[u8]) -> (String, Vec<u8>) {
    let mut labels = Vec::new();
    let mut at = HEADER;
    while query[at] != 0 {
        let label = &query[at + 1..=at + usize::from(query[at])];
        labels.push(String::from_utf8(label.to_vec()).unwrap());
        at += 1 + label.len();
    }
    let question = &query[HEADER..at + 1 + TYPE_AND_CLASS];
    let name = labels.join(".");
    let is_known = name == SERVICE;
    let has_address = is_known && question[question.len() - TYPE_AND_CLASS..].starts_with(&TYPE_A);

    let mut answer = query[..2].to_vec();
    // An answer, recursion desired and available; no such name.
    answer.extend([0x81, if is_known { 0x80 } else { 0x83 }]);
    answer.extend([0, 1, 0, u8::from(has_address), 0, 0, 0, 0]);
    answer.extend(question);
    if has_address {
        // The name of the question, type A, class IN, a minute, four bytes.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        answer.extend(Ipv4Addr::LOCALHOST.octets());
    }
    (name, answer)
}
