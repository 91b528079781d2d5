//! Traces over OTLP/HTTP, with the standard environment variables.

use std::sync::Arc;
use std::time::Duration;

use fivespot_cli_support::Failure;
use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use opentelemetry::{Key, KeyValue};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter as _};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{Metadata, Span, field, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::{Layer, Registry};

use super::export::{self, Batches, Limits, Queue};
use super::{requested_endpoint, variable};
use crate::runtime::metrics::Metrics;
use crate::telemetry::REQUEST_SPANS;

const SERVICE_NAME: &str = "5spot";
const SERVICE_NAME_KEY: Key = Key::from_static_str("service.name");
const PROTOCOL: &str = "http/protobuf";
/// How long the last spans may take to be exported on shutdown.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// Standard variables that this exporter does not support.
const NOT_SUPPORTED: [&str; 8] = [
    "OTEL_EXPORTER_OTLP_COMPRESSION",
    "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION",
    "OTEL_EXPORTER_OTLP_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CLIENT_KEY",
    "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY",
];

const SAMPLERS: [&str; 6] = [
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
];

/// What is traced and where it is exported; nothing unless an endpoint is set.
pub(crate) struct Traces(Option<Enabled>);

struct Enabled {
    provider: SdkTracerProvider,
    exporter: SpanExporter,
    spans: mpsc::Receiver<SpanData>,
    limits: Limits,
    metrics: Arc<Metrics>,
}

/// Exports spans in the background.
pub(crate) struct Exporter(Option<Running>);

struct Running {
    stop: CancellationToken,
    task: AbortOnDropHandle<()>,
    _provider: SdkTracerProvider,
}

impl Traces {
    pub(crate) fn from_env(metrics: &Arc<Metrics>) -> Result<Self, Failure> {
        let Some((name, endpoint)) = requested_endpoint(variable) else { return Ok(Traces(None)) };
        check_settings(name, &endpoint)?;
        let limits = Limits::from_env(variable).map_err(Failure::bad_input)?;
        let mut exporter = SpanExporter::builder()
            .with_http()
            .build()
            .map_err(|error| Failure::bad_input(format!("cannot export traces to {name} {endpoint}: {error}")))?;
        let resource = resource();
        exporter.set_resource(&resource);
        let (queue, spans) = Queue::new(&limits, metrics);
        let provider = SdkTracerProvider::builder().with_span_processor(queue).with_resource(resource).build();
        Ok(Traces(Some(Enabled { provider, exporter, spans, limits, metrics: Arc::clone(metrics) })))
    }

    pub(crate) fn layer(&self) -> Option<Box<dyn Layer<Registry> + Send + Sync>> {
        let tracer = self.0.as_ref()?.provider.tracer(SERVICE_NAME);
        let layer = tracing_opentelemetry::layer().with_tracer(tracer);
        let layer = layer.with_location(false).with_threads(false).with_tracked_inactivity(false).with_target(false);
        Some(layer.with_filter(filter_fn(is_traced)).boxed())
    }

    /// Starts the task that exports spans.
    pub(crate) fn start(self) -> Exporter {
        Exporter(self.0.map(|Enabled { provider, exporter, spans, limits, metrics }| {
            let stop = CancellationToken::new();
            let batches = Batches { spans, limits, stop: stop.clone() };
            let export = async move |batch| exporter.export(batch).await.map_err(|error| error.to_string());
            let task = tokio::spawn(export::run(batches, metrics, export));
            Running { stop, task: AbortOnDropHandle::new(task), _provider: provider }
        }))
    }
}

impl Exporter {
    /// Exports the spans that are queued.
    pub(crate) async fn flush(self) {
        let Some(Running { stop, task, _provider }) = self.0 else { return };
        stop.cancel();
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, task).await;
    }
}

/// Reconciles and their requests. Log lines are not part of a trace.
fn is_traced(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && (metadata.name() == "reconcile" || metadata.target() == REQUEST_SPANS)
}

/// The span of a request that belongs to a reconcile. Watches and events have none.
pub(crate) fn request_span(verb: &'static str, resource: &'static str) -> Span {
    if Span::current().is_none() {
        return Span::none();
    }
    info_span!(target: REQUEST_SPANS, "request", verb, resource, code = field::Empty, otel.kind = "client")
}

/// Adds the id of the trace to a span, so that log lines have it.
pub(crate) fn record_trace_id(span: &Span) {
    let context = span.context();
    let trace = context.span().span_context().clone();
    if trace.is_valid() && trace.is_sampled() {
        span.record("trace_id", field::display(trace.trace_id()));
    }
}

/// A setting that would have no effect is an error.
fn check_settings(name: &str, endpoint: &str) -> Result<(), Failure> {
    if !endpoint.starts_with("http://") {
        return Err(Failure::bad_input(format!(
            "cannot export traces to {name} {endpoint}: only http:// is supported; use a collector in this cluster, which can \
             forward traces with TLS"
        )));
    }
    for name in ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"] {
        if let Some(protocol) = variable(name).filter(|protocol| protocol != PROTOCOL) {
            return Err(Failure::bad_input(format!("{name} is {protocol}, but only {PROTOCOL} is supported")));
        }
    }
    // The SDK ignores these if they are invalid.
    check("OTEL_TRACES_SAMPLER", "a sampler", |value| SAMPLERS.contains(&value))?;
    check("OTEL_TRACES_SAMPLER_ARG", "a number from 0 to 1", |value| {
        value.parse::<f64>().is_ok_and(|ratio| (0.0..=1.0).contains(&ratio))
    })?;
    for name in ["OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT"] {
        check(name, "a number of milliseconds", |value| value.parse::<u64>().is_ok())?;
    }
    match NOT_SUPPORTED.into_iter().find(|name| variable(name).is_some()) {
        Some(name) => Err(Failure::bad_input(format!("{name} is not supported: unset it"))),
        None => Ok(()),
    }
}

fn check(name: &str, expected: &str, is_valid: impl Fn(&str) -> bool) -> Result<(), Failure> {
    match variable(name).filter(|value| !is_valid(value)) {
        Some(value) => Err(Failure::bad_input(format!("{name} is {value:?}, which is not {expected}"))),
        None => Ok(()),
    }
}

/// Who sends the traces: `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`, and the name of this program without them.
fn resource() -> Resource {
    let build = || Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    let resource = build().build();
    let is_named = resource.get(&SERVICE_NAME_KEY).is_some_and(|name| !name.as_str().starts_with("unknown_service"));
    if is_named { resource } else { build().with_service_name(SERVICE_NAME).build() }
}
