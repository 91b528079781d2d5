//! Start-up and shutdown of the process.

use std::sync::Arc;
use std::time::Duration;

use fivespot_cli_support::{Failure, chain};
use fivespot_planner::shards::lease::{Identity, Instance, Partition};
use jiff::Timestamp;
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::capi::{ServedApi, served_api};
use crate::clusters::{ConnectionDeps, LOG_INTERVAL, LogLimit, WorkloadClusters};
use crate::config::{Config, LeaseConfig};
use crate::object::StoredObject;
use crate::reconciler::{self, Context, ContextDeps, Requeue, triggers};
use crate::runtime::backoff::Backoff;
use crate::runtime::client::client;
use crate::runtime::events::EventPublisher;
use crate::runtime::health::{HEARTBEAT_INTERVAL, Health};
use crate::runtime::http_server;
use crate::runtime::leases::Leases;
use crate::runtime::metrics::Metrics;
use crate::runtime::panics::{self, Panicked};
use crate::runtime::permits::{Urgency, WritePermits};
use crate::runtime::response_limits::LargeResponses;
use crate::runtime::shards::Shards;
use crate::runtime::watches::NotServed;
use crate::runtime::workqueue::{Key, Placement, Widths, WorkQueue};
use crate::telemetry::{self, traces::Traces};

/// Reconciles per write permit that are not waiting for a workload cluster. When a window opens for many objects, their writes interleave: all Machines are created
/// before the last statuses are written and before Cluster API is busy with the first of them.
const RECONCILES_PER_WRITE: usize = 4;
/// Reconciles of one namespace, in full lanes: so many slow Clusters of a namespace delay none of its others. A reconcile
/// takes about 20 KiB.
const LANES_PER_NAMESPACE: usize = 4;
/// When to reconcile an object again whose reconcile panicked, unless it changes before.
const REQUEUE_AFTER_PANIC: Duration = Duration::from_mins(1);
/// How often the metric of entries in memory is updated.
const ENTRIES_INTERVAL: Duration = Duration::from_secs(5);
/// How long running reconciles may take to end on shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);
/// How long publishing queued events may take after that.
const EVENT_FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs the controller until SIGTERM or SIGINT.
pub(crate) fn run(config: &Config) -> Result<(), Failure> {
    config.check_instance()?;
    let leases = config.leases(std::env::var("POD_NAMESPACE").ok().as_deref())?;
    let metrics = Arc::new(Metrics::new());
    let traces = Traces::from_env(&metrics)?;
    let log_filter = telemetry::init(config.log_format, &traces)?;
    panics::install_hook();
    let health = Arc::new(Health::new(Arc::clone(&metrics)));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed("cannot start the async runtime", &error))?;
    // Signals are handled before the ports are open, so that a supervisor that sees them can stop the process.
    let shutdown = runtime.block_on(async { shutdown_on_signal() })?;
    http_server::serve((config.health_port, config.metrics_port), &health, &metrics, log_filter)?;
    let exporter = runtime.block_on(async { traces.start() });
    let result = runtime.block_on(run_controller((config, leases.as_ref()), &health, &metrics, shutdown));
    runtime.block_on(exporter.flush());
    result
}

async fn run_controller(
    (config, lease_config): (&Config, Option<&LeaseConfig>),
    health: &Arc<Health>,
    metrics: &Arc<Metrics>,
    shutdown: CancellationToken,
) -> Result<(), Failure> {
    let kube_config = kube::Config::infer().await.map_err(|error| {
        Failure::bad_input(format!("no cluster to connect to: {}; set KUBECONFIG or run in a cluster", chain(&error)))
    })?;
    let max_writes = usize::from(config.max_concurrent_writes);
    let writes = WritePermits::new(max_writes);
    let client =
        client(kube_config, metrics, &writes).map_err(|error| Failure::failed("cannot create a client", &error))?;
    let Some(served) = wait_for_cluster_api(&client, health, &shutdown).await else { return Ok(()) };
    info!(version = served.version.as_str(), "Found Cluster API");

    let total = max_writes * RECONCILES_PER_WRITE;
    let queue = Arc::new(WorkQueue::new(Widths { total, lane: total, namespace: total * LANES_PER_NAMESPACE }));
    let events = EventPublisher::start(client.clone(), hostname(), Arc::clone(&writes), metrics);
    let workload_clusters = WorkloadClusters::new(ConnectionDeps {
        management: client.clone(),
        require_kubeconfig: config.require_kubeconfig,
        agent_namespace: config.agent_namespace.as_str().into(),
        queue: Arc::clone(&queue),
        metrics: Arc::clone(metrics),
        large_responses: Arc::new(LargeResponses::new()),
        log_limit: Arc::new(LogLimit::new(LOG_INTERVAL)),
    });
    let shards = Arc::new(match lease_config {
        Some(_) => Shards::leased(config.instance_count),
        None => Shards::fixed(config.instance_count, config.instance_id),
    });
    let context = Arc::new(Context::new(ContextDeps {
        client: client.clone(),
        served,
        workload_clusters,
        queue,
        writes,
        events,
        metrics: Arc::clone(metrics),
        shards: Arc::clone(&shards),
        shutdown: shutdown.clone(),
    }));
    (0..shards.count()).for_each(|shard| metrics.set_shard_held(shard, false));
    let leases = lease_config.map(|lease_config| {
        let instance = instance(config, lease_config);
        let context = Arc::clone(&context);
        let on_change = move |shard| context.shard_changed(shard);
        Leases::new(client, &lease_config.namespace, instance, (shards, Arc::clone(health)), on_change)
    });
    let (tasks, ready) = (TaskTracker::new(), CancellationToken::new());
    tokio::select! {
        NotServed(kind) = triggers::watch_all(&context, health, config.namespace.as_deref()) => Err(not_served(kind)),
        NotServed(kind) = hold_shards(&context, leases.as_ref(), &ready) => Err(not_served(kind)),
        () = work(&context, health, (&tasks, &ready)) => Ok(()),
        never = record_entries(&context) => never,
        () = shutdown.cancelled() => {
            health.set_synced(false);
            finish_tasks(&context, &tasks, leases.as_ref()).await;
            Ok(())
        }
    }
}

fn instance(config: &Config, leases: &LeaseConfig) -> Instance {
    Instance {
        id: config.instance_id,
        identity: Identity::new(config.instance_id, &hostname(), fastrand::u32(..)),
        partition: Partition { count: config.instance_count, namespace: config.namespace.clone().unwrap_or_default() },
        lease_duration: leases.duration,
    }
}

async fn record_entries(context: &Context) -> ! {
    loop {
        context.record_entries();
        tokio::time::sleep(ENTRIES_INTERVAL).await;
    }
}

/// Holds shards from the moment at which this instance can act on them.
async fn hold_shards(context: &Context, leases: Option<&Leases>, ready: &CancellationToken) -> NotServed {
    let Some(leases) = leases else {
        ready.cancelled().await;
        (0..context.shards.count())
            .filter(|shard| context.shards.holds_shard(*shard))
            .for_each(|shard| context.shard_changed(shard));
        return std::future::pending().await;
    };
    let hold = async {
        ready.cancelled().await;
        leases.run().await
    };
    tokio::select! {
        not_served = leases.watch() => not_served,
        never = hold => never,
    }
}

/// Reconciles objects as they become due, once the caches are filled.
async fn work(context: &Arc<Context>, health: &Health, (tasks, ready): (&TaskTracker, &CancellationToken)) {
    with_heartbeat(health, context.wait_until_ready()).await;
    health.set_synced(true);
    ready.cancel();
    info!(scheduledmachines = context.objects.all().len(), "Ready");
    loop {
        let next = context.queue.next(|key| placement(context, key), |key| promote(context, key));
        let key = with_heartbeat(health, next).await;
        let context = Arc::clone(context);
        tasks.spawn(async move {
            let requeue_after = panics::isolate(reconcile(&context, &key)).await;
            let requeue_after = requeue_after.unwrap_or_else(|Panicked| {
                context.metrics.record_error("panic");
                // A write may have been in flight.
                context.mark_uncertain(&key);
                Some(REQUEUE_AFTER_PANIC)
            });
            context.queue.done(&key, requeue_after);
        });
    }
}

/// Reconciles one object and returns when it is due again.
async fn reconcile(context: &Context, key: &Key) -> Option<Duration> {
    if !context.shards.holds(key) {
        context.forget(key);
        context.metrics.set_overdue(key, false);
        return None;
    }
    let started = Instant::now();
    let urgency = context.urgency(key);
    let is_urgent = urgency == Urgency::Urgent;
    let _running = context.workload_clusters.start_reconcile(key, urgency);
    let _others_wait = is_urgent.then(|| context.writes.urgent_reconcile(&key.namespace));
    let (requeue, result) = reconciler::reconcile(context, key).await;
    let object = context.objects.get(&key.namespace, &key.name);
    let phase = object.as_ref().and_then(|object| object.phase());
    context.metrics.record_reconcile(phase, result, started.elapsed());
    context.metrics.set_overdue(key, object.is_some_and(|object| is_overdue(&object)));
    match requeue {
        Requeue::Never => None,
        // Counted from the decision, not from the end of the reconcile.
        Requeue::After(after) => Some(after.saturating_sub(started.elapsed())),
    }
}

/// Whether a shutdown has exceeded its timeout.
fn is_overdue(object: &StoredObject) -> bool {
    let started = object.status().shutdown_started_at;
    started.is_some_and(|started| object.requested().is_overdue(started.0, Timestamp::now()))
}

/// If an object became urgent while it is reconciled, the rest of that reconcile is urgent too: the next one waits for it.
fn promote(context: &Context, key: &Key) {
    if context.urgency(key) == Urgency::Urgent {
        context.writes.promote(key);
        context.workload_clusters.supersede_reconcile(key);
    }
}

/// Objects of one Cluster share a lane, so a slow Cluster delays no other.
fn placement(context: &Context, key: &Key) -> Placement {
    let object = context.objects.get(&key.namespace, &key.name);
    object.map_or_else(Placement::default, |object| Placement {
        lane: object.spec.cluster_name.clone(),
        urgent: context.is_urgent(key, &object),
        priority: object.spec.priority,
    })
}

/// Waits until Cluster API is installed; `None` on shutdown.
async fn wait_for_cluster_api(client: &Client, health: &Health, shutdown: &CancellationToken) -> Option<ServedApi> {
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));
    loop {
        let served = tokio::select! {
            served = with_heartbeat(health, served_api(client)) => served,
            () = shutdown.cancelled() => return None,
        };
        match served {
            Ok(Some(served)) => return Some(served),
            Ok(None) => warn!("Waiting for Cluster API: kind Machine of cluster.x-k8s.io is not served"),
            Err(error) => warn!(%error, "Waiting for the API server"),
        }
        let delay = backoff.next().unwrap_or_default();
        tokio::select! {
            () = with_heartbeat(health, tokio::time::sleep(delay)) => {}
            () = shutdown.cancelled() => return None,
        }
    }
}

/// Awaits a future while reporting that the event loop is alive.
async fn with_heartbeat<T>(health: &Health, future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    loop {
        health.heartbeat();
        tokio::select! {
            result = &mut future => return result,
            () = tokio::time::sleep(HEARTBEAT_INTERVAL) => {}
        }
    }
}

fn not_served(kind: &str) -> Failure {
    Failure::Failed(format!(
        "the API server does not serve {kind} in the version that was found at start-up; install its CRD if it is \
         missing, then restart the controller"
    ))
}

/// No new reconcile starts; running ones end after the request in flight. Leases are released as soon as none is in flight.
async fn finish_tasks(context: &Context, tasks: &TaskTracker, leases: Option<&Leases>) {
    info!(reconciles = tasks.len(), "Shutting down");
    tasks.close();
    let release = async {
        if let Some(leases) = leases {
            leases.release_all().await;
        }
    };
    let _ = timeout(SHUTDOWN_TIMEOUT, async { tokio::join!(tasks.wait(), release) }).await;
    (0..context.shards.count()).for_each(|shard| context.metrics.set_shard_held(shard, false));
    let _ = timeout(EVENT_FLUSH_TIMEOUT, context.events.flush()).await;
    info!("Shut down");
}

fn shutdown_on_signal() -> Result<CancellationToken, Failure> {
    let listen = |kind| signal(kind).map_err(|error| Failure::failed("cannot listen for signals", &error));
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    let shutdown = CancellationToken::new();
    let token = shutdown.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        token.cancel();
    });
    Ok(shutdown)
}

/// Reporting instance of events: the name of the pod.
fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(|_| "5spot".to_owned(), |it| it.trim().to_owned())
}
