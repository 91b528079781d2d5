//! Objects are created while their window is open: the time until all are Active, then a quiet minute and memory.

use std::time::Duration;

use fivespot_testbed::audit::AuditEntry;
use futures::{StreamExt as _, channel::mpsc};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::env::{CONCURRENT_WRITES, Env, for_each, mean, phase_series, print, requests_per_object, seconds};
use crate::fixtures::{BareClient, scheduled_machine};

/// How often a fleet that is small enough is measured, because the machine may be shared.
fn runs(objects: usize) -> usize {
    if objects <= 1000 { 2 } else { 1 }
}

pub(crate) async fn measure(objects: usize) -> Value {
    let (mut controller, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..runs(objects) {
        bare.push(Box::pin(measure_bare_client(objects)).await);
        controller.push(Box::pin(measure_controller(objects)).await);
    }
    let all = |figures: &[Value]| figures.iter().map(|it| it["seconds"].as_f64().unwrap()).collect::<Vec<f64>>();
    let (times, bare_times) = (all(&controller), all(&bare));
    let last = controller.last().unwrap();
    print(&format!("{objects} objects are created, their window is open"));
    print(&format!("  first creation to last Active       {times:.1?} s"));
    print(&format!("  bare client, same writes            {bare_times:.1?} s"));
    let ratio = mean(&times) / mean(&bare_times);
    print(&format!("  ratio                               {ratio:>8.2}"));
    print(&format!("  last Event after the last Active    {:>8.1} s", last["lastEvent"].as_f64().unwrap()));
    print(&format!("  requests in a quiet minute          {:>8}", last["quietMinute"]));
    print(&format!("  memory, and the highest             {} MiB, {} MiB", last["memory"], last["highestMemory"]));
    print(&format!("  requests per object                 {}", last["requestsPerObject"]));
    print(&format!("  CPU seconds                         {}", last["cpu"]));
    print(&format!("  CPU seconds with the bare client    {}", bare.last().unwrap()["cpu"]));
    json!({ "objects": objects, "controller": controller, "bare": bare, "ratio": ratio })
}

async fn measure_controller(objects: usize) -> Value {
    let env = Env::start("creation").await;
    let controller = env.start_controller().await;
    let (start, mark, cpu) = (Timestamp::now(), env.mark(), env.cpu(Some(&controller)).await);
    let create = for_each(objects, async |name| {
        scheduled_machine(&env.ns, &name).create().await;
    });
    let (series, ()) = tokio::join!(phase_series(&controller, "Active", start, objects), create);
    let cpu = env.cpu(Some(&controller)).await.since(&cpu);
    let requests = env.controller_requests(mark).await;
    let is_status = |it: &&AuditEntry| it.target() == "scheduledmachines/status";
    let last = requests.iter().filter(is_status).map(|it| it.at).max().unwrap();
    let events_before = requests.iter().filter(|it| it.resource == "events" && it.at <= last).count();
    let requests: Vec<AuditEntry> = requests.into_iter().filter(|it| it.resource != "events").collect();
    let last_event = env.wait_until_controller_is_quiet().await.duration_since(last);
    let mark = env.mark();
    tokio::time::sleep(Duration::from_mins(1)).await;
    let quiet = env.controller_requests(mark).await.len();
    let (memory, highest) = controller.resident_memory();
    json!({
        "seconds": seconds(last.duration_since(start)),
        "requestsPerObject": requests_per_object(&requests, objects),
        "eventsBeforeLastActive": events_before,
        "lastEvent": seconds(last_event),
        "quietMinute": quiet,
        "memory": memory.round(),
        "highestMemory": highest.round(),
        "cpu": cpu,
        "active": series,
    })
}

/// A client creates the objects, and another one sends the writes about each as soon as it exists.
async fn measure_bare_client(objects: usize) -> Value {
    let env = Env::start("bare").await;
    let client = BareClient::start(&env.testbed, &env.ns).await;
    let (start, cpu) = (Timestamp::now(), env.cpu(None).await);
    let (sender, created) = mpsc::unbounded();
    let create = async {
        let sender = sender;
        for_each(objects, async |name| {
            scheduled_machine(&env.ns, &name).create().await;
            sender.unbounded_send(name).unwrap();
        })
        .await;
    };
    let send = created.for_each_concurrent(CONCURRENT_WRITES, async |name| {
        client.activate(&name).await;
    });
    tokio::join!(create, send);
    let elapsed = Timestamp::now().duration_since(start);
    json!({ "seconds": seconds(elapsed), "cpu": env.cpu(None).await.since(&cpu) })
}
