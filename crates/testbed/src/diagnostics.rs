//! Dumps the objects and events of a failing test's namespace.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::api::{DynamicObject, ListParams};
use kube::discovery::{Discovery, Scope, verbs};
use kube::{Api, Client};

use crate::access::Access;

/// A test that fails because the API server hangs must still end.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Writes the objects of a namespace to `file`, and its events and the file's path to standard error.
///
/// Runs during unwinding, so it has its own thread, runtime and client, and prints errors instead of panicking.
pub(crate) fn dump(access: &Access, namespace: &str, path: &Path) {
    let (access, namespace, file) = (access.clone(), namespace.to_owned(), path.to_owned());
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let collected = tokio::time::timeout(TIMEOUT, collect(access.client(), &namespace)).await;
            let (events, objects) = match collected {
                Ok(Ok(collected)) => collected,
                Ok(Err(error)) => (format!("cannot read events and objects: {error}\n"), String::new()),
                Err(_) => ("cannot read events and objects: timed out\n".to_owned(), String::new()),
            };
            fs::write(&file, &objects)?;
            eprintln!("--- namespace {namespace}\n{events}objects: {}", file.display());
            if let Some(run) = file.parent() {
                eprintln!("logs: {}", run.join("logs").display());
            }
            Ok::<(), std::io::Error>(())
        })
    });
    match thread.join() {
        Ok(Ok(())) => {}
        Ok(Err(error)) => eprintln!("cannot write {}: {error}", path.display()),
        Err(_) => eprintln!("cannot write {}: panicked", path.display()),
    }
}

async fn collect(client: Client, namespace: &str) -> Result<(String, String), kube::Error> {
    let mut events = String::new();
    for event in Api::<Event>::namespaced(client.clone(), namespace).list(&ListParams::default()).await?.items {
        let about = event.involved_object;
        let (kind, name) = (about.kind.unwrap_or_default(), about.name.unwrap_or_default());
        let (reason, message) = (event.reason.unwrap_or_default(), event.message.unwrap_or_default());
        writeln!(events, "event: {kind} {name}: {reason}: {message}").expect("writing to a String cannot fail");
    }
    let mut objects = String::new();
    for group in Discovery::new(client.clone()).run().await?.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            if capabilities.scope != Scope::Namespaced || !capabilities.supports_operation(verbs::LIST) {
                continue;
            }
            let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
            let Ok(found) = api.list(&ListParams::default()).await else { continue };
            for mut object in found.items {
                object.metadata.managed_fields = None;
                let text = serde_json::to_string_pretty(&object).unwrap_or_else(|error| error.to_string());
                writeln!(objects, "--- {} {}\n{text}", resource.kind, object.metadata.name.unwrap_or_default())
                    .expect("writing to a String cannot fail");
            }
        }
    }
    Ok((events, objects))
}
