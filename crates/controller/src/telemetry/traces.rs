//! Traces in the OpenTelemetry protocol (OTLP), if the controller was built with the feature `otlp`: a span per reconcile, and
//! a child span per request to an API server.

#[cfg(not(feature = "otlp"))]
mod disabled;
#[cfg(feature = "otlp")]
mod export;
#[cfg(feature = "otlp")]
mod otlp;

#[cfg(not(feature = "otlp"))]
pub(crate) use disabled::{Traces, record_trace_id, request_span};
#[cfg(feature = "otlp")]
pub(crate) use otlp::{Traces, record_trace_id, request_span};

/// The variables that turn on traces: the base URL, and the whole URL.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];

/// A variable of the environment; empty is the same as unset.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

/// The variable that requests traces, and its value; the standard has two that turn them off again.
fn requested_endpoint(variable: impl Fn(&str) -> Option<String>) -> Option<(&'static str, String)> {
    let is = |name: &str, expected: &str| variable(name).is_some_and(|value| value.eq_ignore_ascii_case(expected));
    if is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
        return None;
    }
    ENDPOINTS.into_iter().rev().find_map(|name| Some((name, variable(name)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_turns_on_traces_unless_they_are_disabled() {
        let requested = |set: &[(&str, &str)]| {
            let variable = |name: &str| set.iter().find(|(it, _)| *it == name).map(|(_, value)| (*value).to_owned());
            requested_endpoint(variable).map(|(name, value)| format!("{name}={value}"))
        };
        let [base, whole] = ENDPOINTS;
        assert_eq!(requested(&[]), None);
        assert_eq!(requested(&[(base, "http://a")]).unwrap(), "OTEL_EXPORTER_OTLP_ENDPOINT=http://a");
        assert_eq!(
            requested(&[(base, "http://a"), (whole, "http://b")]).unwrap(),
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://b"
        );
        assert_eq!(requested(&[(base, "http://a"), ("OTEL_SDK_DISABLED", "True")]), None);
        assert_eq!(requested(&[(base, "http://a"), ("OTEL_TRACES_EXPORTER", "none")]), None);
    }
}
