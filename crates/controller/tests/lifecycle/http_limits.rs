//! Clients that keep connections to the health and metrics ports open.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::fixtures::{Controller, Endpoint, namespace_with_cluster, testbed};

/// More than the limit of the controller, far fewer than a process may have files open in most systems.
const CONNECTIONS: usize = 500;
/// Of both ports, with some for the log, the API server and watches.
const MAX_OPEN_FILES: usize = 200;

fn open_files(controller: &Controller) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", controller.pid())).unwrap().count()
}

#[tokio::test]
async fn silent_connections_exhaust_no_file_descriptors_and_probes_are_answered() {
    let ns = namespace_with_cluster("silent-connections").await;
    let controller = Controller::start(testbed().await, &ns).await;
    controller.wait_until_ready().await;
    let mut silent = Vec::new();
    for endpoint in [Endpoint::Health, Endpoint::Metrics] {
        let port = controller.port(endpoint).await;
        for index in 0..CONNECTIONS {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            // Some send nothing, some a request that does not end. The controller may have closed the connection.
            if index % 2 == 0 {
                let _ = stream.write_all(b"GET /readyz HTTP/1.1\r\nX-Slow: ").await;
            }
            silent.push(stream);
        }
        // Answered while the others are open.
        let path = if matches!(endpoint, Endpoint::Health) { "/readyz" } else { "/metrics" };
        assert_eq!(controller.get(endpoint, path).await.code, 200);
        // By then the others were accepted and most of them closed, before any timeout.
        let open = open_files(&controller);
        assert!(open < MAX_OPEN_FILES, "{open} files");
    }
    // Also those within the limit are closed in the end, without a byte from the client.
    for stream in &mut silent {
        let mut buffer = Vec::new();
        let closed = tokio::time::timeout(Duration::from_mins(2), stream.read_to_end(&mut buffer)).await;
        assert!(closed.is_ok(), "a silent connection stays open");
    }
    ns.close().await;
}
