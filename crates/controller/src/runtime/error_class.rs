//! Why a workload cluster cannot be used, without the words of its server.
//!
//! A tenant chooses the server of a kubeconfig and reads the status. The text of an error or a response would tell them what
//! answers at an address of the management network, so the status has only its class. The log has the text.

use std::error::Error;
use std::fmt;
use std::io;

use http::StatusCode;

use crate::runtime::response_limits::LimitExceeded;

/// The class of an error of a server that belongs to a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorClass {
    Refused,
    Timeout,
    Tls,
    /// Any other failure to connect or to stay connected: an unknown name, no route, a connection that was closed.
    Connection,
    HttpStatus(u16),
    InvalidResponse,
    LimitExceeded(LimitExceeded),
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorClass::Refused => f.write_str("connection refused"),
            ErrorClass::Timeout => f.write_str("timeout"),
            ErrorClass::Tls => f.write_str("TLS handshake failed"),
            ErrorClass::Connection => f.write_str("connection failed"),
            ErrorClass::HttpStatus(code) => {
                let reason = StatusCode::from_u16(*code).ok().and_then(|code| code.canonical_reason());
                write!(f, "HTTP status {code}{}", reason.map(|reason| format!(" {reason}")).unwrap_or_default())
            }
            ErrorClass::InvalidResponse => f.write_str("invalid response"),
            ErrorClass::LimitExceeded(limit) => {
                write!(f, "{limit}; check that it is the API server of a Kubernetes cluster")
            }
        }
    }
}

impl ErrorClass {
    pub(crate) fn of(error: &kube::Error) -> Self {
        if let Some(limit) = find::<LimitExceeded>(error) {
            return ErrorClass::LimitExceeded(*limit);
        }
        if find::<rustls::Error>(error).is_some() {
            return ErrorClass::Tls;
        }
        match error {
            kube::Error::Api(status) => ErrorClass::HttpStatus(status.code),
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => ErrorClass::InvalidResponse,
            _ if find::<http::Error>(error).is_some() || is_malformed(error) => ErrorClass::InvalidResponse,
            _ => find::<io::Error>(error).map_or(ErrorClass::Connection, |error| match error.kind() {
                io::ErrorKind::ConnectionRefused => ErrorClass::Refused,
                io::ErrorKind::TimedOut => ErrorClass::Timeout,
                _ => ErrorClass::Connection,
            }),
        }
    }
}

/// Whether the server sent something that is not HTTP.
fn is_malformed(error: &(dyn Error + 'static)) -> bool {
    find::<hyper::Error>(error).is_some_and(|error| error.is_parse() || error.is_parse_too_large())
}

/// The last error of a type among an error and its sources. An I/O error does not count what it wraps as its source.
pub(crate) fn find<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    let inner = wrapped.map(|inner| inner as &(dyn Error + 'static)).or_else(|| error.source());
    inner.and_then(find).or_else(|| error.downcast_ref())
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn service(error: impl Error + Send + Sync + 'static) -> kube::Error {
        kube::Error::Service(Box::new(error))
    }

    #[test]
    fn error_is_reported_by_class_without_its_text() {
        let forbidden = Status::failure("secret text", "Forbidden").with_code(403);
        let parse = serde_json::from_str::<u8>("\"secret text\"").unwrap_err();
        let io = |kind| service(io::Error::new(kind, "secret text"));
        let tls = io::Error::new(io::ErrorKind::InvalidData, rustls::Error::General("secret text".to_owned()));
        let limit = io::Error::other(service(io::Error::other(LimitExceeded::WatchEvent)));
        for (error, expected) in [
            (kube::Error::Api(forbidden.boxed()), "HTTP status 403 Forbidden"),
            (kube::Error::SerdeError(parse), "invalid response"),
            (io(io::ErrorKind::ConnectionRefused), "connection refused"),
            (io(io::ErrorKind::TimedOut), "timeout"),
            (io(io::ErrorKind::UnexpectedEof), "connection failed"),
            (service(tls), "TLS handshake failed"),
            (
                kube::Error::ReadEvents(limit),
                "a watch event is larger than 16384 KiB; check that it is the API server of a Kubernetes cluster",
            ),
        ] {
            assert_eq!(ErrorClass::of(&error).to_string(), expected, "{error:?}");
        }
    }
}
