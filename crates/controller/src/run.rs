//! From the first line to the last: starting in order, and ending in order.

use std::sync::Arc;
use std::time::Duration;

use fivespot_api::ScheduledMachine;
use fivespot_cli_support::{Failure, chain};
use fivespot_planner::intent::Intent;
use jiff::Timestamp;
use kube::{Client, Config};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::announce::Announcer;
use crate::client::client;
use crate::cluster_api::Served;
use crate::context::{Context, Parts};
use crate::discovery;
use crate::log;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::queue::{Key, Place, Queue};
use crate::reconcile::reconcile;
use crate::serve::{self, Health};
use crate::urgency::is_urgent;
use crate::watch::{self, Gone};
use crate::workload::{Means, Workloads};

/// So many passes take turns with each write that may be under way. When a window opens for many, their writes interleave:
/// everybody's Machine is there before anybody's last status is, and before Cluster API is busy with the first of them.
const PASSES_PER_WRITE: usize = 4;
/// How long passes may take to end when the process is told to.
const FAREWELL: Duration = Duration::from_secs(20);
/// How long events that wait may take to be published then.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Runs the controller until it is told to stop.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    log::start(options.log_format);
    let (health, metrics) = (Arc::new(Health::new()), Arc::new(Metrics::new()));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed("cannot start", &error))?;
    // Before anybody can see that it is there, and tell it to stop.
    let stopping = runtime.block_on(async { stop_on_signal() })?;
    serve::serve((options.health_port, options.metrics_port), &health, &metrics)?;
    runtime.block_on(live(options, &health, &metrics, stopping))
}

async fn live(
    options: &Options,
    health: &Arc<Health>,
    metrics: &Arc<Metrics>,
    stopping: CancellationToken,
) -> Result<(), Failure> {
    let config = Config::infer().await.map_err(|error| {
        Failure::bad_input(format!("no cluster to work on: {}; set KUBECONFIG, or run in a cluster", chain(&error)))
    })?;
    let client = client(config, metrics).map_err(|error| Failure::failed("cannot make a client", &error))?;
    let Some(served) = cluster_api(&client, health, &stopping).await else { return Ok(()) };
    tracing::info!(version = served.version.as_str(), "Cluster API is served");

    let at_once = usize::from(options.max_concurrent_writes);
    let (queue, writes) = (Arc::new(Queue::new(at_once * PASSES_PER_WRITE)), Arc::new(Semaphore::new(at_once)));
    let announcer = Announcer::start(client.clone(), hostname(), Arc::clone(&writes));
    let workloads = Workloads::new(Means {
        management: client.clone(),
        require_kubeconfig: options.require_kubeconfig,
        agent_namespace: options.agent_namespace.as_str().into(),
        queue: Arc::clone(&queue),
        metrics: Arc::clone(metrics),
    });
    let context = Arc::new(Context::new(Parts {
        client,
        served,
        workloads,
        queue,
        writes,
        announcer,
        metrics: Arc::clone(metrics),
        stopping: stopping.clone(),
    }));
    let watches = watch::hear(Arc::clone(&context), options.namespace.clone());
    tokio::select! {
        Gone(kind) = watches => Err(not_served_any_more(kind)),
        () = work(&context, health) => Ok(()),
        () = stopping.cancelled() => {
            health.set_ready(false);
            metrics.holds(false);
            farewell(&context).await;
            Ok(())
        }
    }
}

/// Takes up one object after the other, once everything that there is has been heard of.
async fn work(context: &Arc<Context>, health: &Health) {
    while !context.is_synced() {
        health.beat();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    health.set_ready(true);
    context.metrics.holds(true);
    tracing::info!(objects = context.objects.all().len(), "ready");
    loop {
        health.beat();
        let key = tokio::select! {
            key = context.queue.next(|key| place(context, key)) => key,
            () = tokio::time::sleep(serve::PULSE) => continue,
        };
        let context = Arc::clone(context);
        tokio::spawn(async move {
            let begun = Instant::now();
            let next = reconcile(&context, &key).await;
            let object = context.objects.get(&key.namespace, &key.name);
            context.metrics.passed(
                object.as_ref().and_then(|it| it.status.as_ref()?.phase),
                next.result,
                begun.elapsed(),
            );
            context.metrics.overdue(&key, object.is_some_and(|it| is_overdue(&it)));
            // From the time at which it was decided, not from the end of the pass.
            context.queue.done(&key, next.again.map(|it| it.saturating_sub(begun.elapsed())));
        });
    }
}

/// Whether a machine is still on its way out when it should have been gone. Every object is looked at once a minute at least.
fn is_overdue(object: &ScheduledMachine) -> bool {
    let began = object.status.as_ref().and_then(|it| it.shutdown_started_at.as_ref());
    began.is_some_and(|it| Intent::of(object).is_overdue(it.0, Timestamp::now()))
}

/// Those of one Cluster wait for each other, and for nobody else.
fn place(context: &Context, key: &Key) -> Place {
    let object = context.objects.get(&key.namespace, &key.name);
    object.map_or_else(Place::default, |object: Arc<ScheduledMachine>| Place {
        lane: format!("{}/{}", key.namespace, object.spec.cluster_name),
        urgent: is_urgent(context, key, &object),
        priority: object.spec.priority,
    })
}

/// What Cluster API is called here. Until it is installed there is nothing to do but to wait for it.
async fn cluster_api(client: &Client, health: &Health, stopping: &CancellationToken) -> Option<Served> {
    let mut wait = Duration::from_secs(1);
    loop {
        let served = tokio::select! {
            served = heard(health, discovery::served(client)) => served,
            () = stopping.cancelled() => return None,
        };
        match served {
            Ok(Some(served)) => return Some(served),
            Ok(None) => {
                tracing::warn!("Cluster API is not installed (no kind Machine in cluster.x-k8s.io): waiting for it");
            }
            Err(trouble) => tracing::warn!(error = %trouble, "the API server does not answer: waiting for it"),
        }
        tokio::select! {
            () = heard(health, tokio::time::sleep(wait)) => wait = (wait * 2).min(Duration::from_secs(10)),
            () = stopping.cancelled() => return None,
        }
    }
}

/// Waits for something, and makes itself heard meanwhile: whoever waits is not stuck.
async fn heard<T>(health: &Health, something: impl Future<Output = T>) -> T {
    let mut something = std::pin::pin!(something);
    loop {
        health.beat();
        tokio::select! {
            it = &mut something => return it,
            () = tokio::time::sleep(serve::PULSE) => {}
        }
    }
}

fn not_served_any_more(kind: &str) -> Failure {
    Failure::Failed(format!(
        "the API server does not serve {kind} (any more) in the version that was found at the start: \
         install its CRD if it is missing; the next start takes the version that is served then"
    ))
}

/// Ends in order: no new pass begins, those under way end after the request that they have sent.
async fn farewell(context: &Context) {
    tracing::info!(passes = context.queue.running(), "stopping");
    let until = Instant::now() + FAREWELL;
    while context.queue.running() > 0 && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let until = Instant::now() + LAST_WORDS;
    while !context.announcer.is_silent() && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tracing::info!("stopped");
}

fn stop_on_signal() -> Result<CancellationToken, Failure> {
    let listen = |kind| signal(kind).map_err(|error| Failure::failed("cannot listen for signals", &error));
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    let stopping = CancellationToken::new();
    let token = stopping.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        token.cancel();
    });
    Ok(stopping)
}

/// Who publishes events: the pod, as its host name says.
fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(|_| "5spot".to_owned(), |it| it.trim().to_owned())
}
