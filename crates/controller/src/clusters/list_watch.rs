//! List and watch of a workload cluster, with limits.
//!
//! The watcher of kube-rs decodes a page of any number of objects, follows any number of pages, immediately starts a
//! watch again that the server closes, and logs texts of the server. None of that is acceptable for a server that belongs to a
//! tenant.

use std::collections::VecDeque;
use std::time::Duration;

use futures::StreamExt as _;
use futures::io::{AsyncBufRead, AsyncBufReadExt as _};
use futures::stream::{self, BoxStream};
use kube::api::{ListParams, WatchParams};
use kube::core::Request;
use kube::runtime::watcher::Event;
use kube::{Client, Resource, ResourceExt as _};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, sleep_until};

use super::truncated_json::complete;
use super::wire::{IdentityMeta, Page, WireIdentity, WireStatus};
use crate::runtime::rate_limit::RateLimit;
use crate::runtime::request::{Operation, Origin, RequestError, send_to};

/// Small, because a Node can have tens of kilobytes and the client collects a page in memory.
pub(crate) const PAGE_SIZE: u32 = 50;
/// Up to 25,000 objects.
const MAX_PAGES: u32 = 500;
/// How long the server may take to send a page, or the start of a watch. A new connection is given up earlier.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);
/// A server that closes watches immediately is not asked again without a delay.
const MIN_WATCH_INTERVAL: Duration = Duration::from_secs(2);
/// Bytes of watch events. More are received later, not lost.
const WATCH_BURST: u32 = 8 * 1024 * 1024;
const WATCH_BYTES_PER_SECOND: u32 = 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub(super) enum WatchError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("the list of {kind}s has more than {MAX_PAGES} pages")]
    TooManyPages { kind: &'static str },
    #[error("the list of {kind}s has no resourceVersion")]
    NoResourceVersion { kind: &'static str },
    #[error("the watch of {kind}s failed with code {code}")]
    Failed { kind: &'static str, code: u16, text: String },
    #[error("the watch of {kind}s sent an invalid event")]
    InvalidEvent { kind: &'static str },
    /// The watch continues. Only this object has to be read.
    #[error("the watch of {kind}s sent an event of {kind} {name} that is too large or invalid")]
    Skipped { kind: &'static str, name: String },
}

impl WatchError {
    /// Whether the server sent what no API server sends. Otherwise the connection was lost, which happens to any.
    pub(super) fn is_violation(&self) -> bool {
        match self {
            WatchError::Request(error) => error.is_violation(),
            WatchError::Failed { .. } | WatchError::Skipped { .. } => false,
            WatchError::TooManyPages { .. }
            | WatchError::NoResourceVersion { .. }
            | WatchError::InvalidEvent { .. } => true,
        }
    }

    /// With what the server sent, for the log.
    pub(super) fn text(&self) -> String {
        match self {
            WatchError::Request(error) => error.text(),
            WatchError::Failed { text, .. } => format!("{self}: {text}"),
            WatchError::TooManyPages { .. }
            | WatchError::NoResourceVersion { .. }
            | WatchError::InvalidEvent { .. }
            | WatchError::Skipped { .. } => self.to_string(),
        }
    }
}

/// What to list and watch.
pub(super) struct ListWatch {
    pub(super) client: Client,
    pub(super) origin: Origin,
    pub(super) kind: &'static str,
    /// The path of the resource.
    pub(super) path: String,
    pub(super) labels: Option<String>,
    pub(super) objects: Objects,
}

/// How the caller gets the objects that exist when the watch starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Objects {
    Listed,
    /// The caller reads those that it needs by name, and those whose event is [skipped](WatchError::Skipped). One object that
    /// is too large or cannot be decoded concerns no other.
    ReadByName,
}

/// A name that no object has: such a list is empty, and says from which version to watch.
const NO_OBJECT: &str = "metadata.name=5spot.no-such-object";

type Body = std::pin::Pin<Box<dyn AsyncBufRead + Send>>;

enum State<K> {
    Start,
    Listing { page: VecDeque<K>, next: Next, pages: u32 },
    Listed { version: String },
    Watching { version: String, body: Body },
}

/// What follows after a page.
enum Next {
    Page(Option<String>),
    Watch(String),
}

struct Progress<K> {
    of: ListWatch,
    state: State<K>,
    watch_started: Option<Instant>,
    rate: RateLimit,
}

/// Events of a list and a watch.
pub(super) type EventStream<K> = BoxStream<'static, Result<Event<K>, WatchError>>;

/// Lists, then watches. After an error it starts over with a list; the caller decides when to poll again.
pub(super) fn list_watch<K>(of: ListWatch) -> EventStream<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Send + 'static,
{
    let rate = RateLimit::new(WATCH_BURST, WATCH_BYTES_PER_SECOND);
    let progress = Progress { of, state: State::Start, watch_started: None, rate };
    let events = stream::unfold(progress, |mut progress| async {
        loop {
            match progress.step().await {
                Ok(None) => {}
                Ok(Some(event)) => return Some((Ok(event), progress)),
                Err(error) => return Some((Err(error), progress)),
            }
        }
    });
    events.boxed()
}

/// Converts the object of an event.
pub(super) fn map_event<A, B>(event: Event<A>, convert: impl FnOnce(A) -> B) -> Event<B> {
    match event {
        Event::Apply(object) => Event::Apply(convert(object)),
        Event::Delete(object) => Event::Delete(convert(object)),
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(convert(object)),
        Event::InitDone => Event::InitDone,
    }
}

impl<K: Resource<DynamicType = ()> + DeserializeOwned + Send + 'static> Progress<K> {
    async fn step(&mut self) -> Result<Option<Event<K>>, WatchError> {
        match std::mem::replace(&mut self.state, State::Start) {
            State::Start => {
                self.state = State::Listing { page: VecDeque::new(), next: Next::Page(None), pages: 0 };
                Ok(Some(Event::Init))
            }
            State::Listing { mut page, next, pages } => {
                if let Some(object) = page.pop_front() {
                    self.state = State::Listing { page, next, pages };
                    return Ok(Some(Event::InitApply(object)));
                }
                match next {
                    Next::Page(token) => {
                        self.state = self.of.list(token, pages).await?;
                        Ok(None)
                    }
                    Next::Watch(version) => {
                        self.state = State::Listed { version };
                        Ok(Some(Event::InitDone))
                    }
                }
            }
            State::Listed { version } => {
                if let Some(started) = self.watch_started {
                    sleep_until(started + MIN_WATCH_INTERVAL).await;
                }
                self.watch_started = Some(Instant::now());
                let body = self.of.watch(&version).await?;
                self.state = State::Watching { version, body };
                Ok(None)
            }
            State::Watching { version, body } => self.next_event(version, body).await,
        }
    }

    async fn next_event(&mut self, version: String, mut body: Body) -> Result<Option<Event<K>>, WatchError> {
        let mut line = Vec::new();
        let received = body.read_until(b'\n', &mut line).await;
        if received.map_err(|error| self.of.request_error("watch", kube::Error::ReadEvents(error)))? == 0 {
            // The server ends each watch after some minutes.
            self.state = State::Listed { version };
            return Ok(None);
        }
        sleep(self.rate.take(u32::try_from(line.len()).unwrap_or(u32::MAX))).await;
        // A line that is cut off may end within a character.
        let line = String::from_utf8_lossy(&line);
        let decoded = decode::<K>(&line, self.of.kind);
        if decoded.is_err()
            && self.of.objects == Objects::ReadByName
            && let Some(IdentityMeta { name: Some(name), resource_version }) = identify(&line)
        {
            let version = resource_version.map_or(version, |version| version.0);
            self.state = State::Watching { version, body };
            return Err(WatchError::Skipped { kind: self.of.kind, name: name.0 });
        }
        let (version, event) = match decoded? {
            Decoded::Apply(object) => (object.resource_version(), Some(Event::Apply(object))),
            Decoded::Delete(object) => (object.resource_version(), Some(Event::Delete(object))),
            Decoded::Bookmark(version) => (version, None),
            // The state starts over with a list.
            Decoded::Expired => return Ok(None),
        };
        let version = version.ok_or(WatchError::NoResourceVersion { kind: self.of.kind })?;
        self.state = State::Watching { version, body };
        Ok(event)
    }
}

impl ListWatch {
    async fn list<K: DeserializeOwned>(&self, token: Option<String>, pages: u32) -> Result<State<K>, WatchError> {
        if pages == MAX_PAGES {
            return Err(WatchError::TooManyPages { kind: self.kind });
        }
        let mut params = ListParams::default().limit(PAGE_SIZE);
        (params.label_selector, params.continue_token) = (self.labels.clone(), token);
        if self.objects == Objects::ReadByName {
            params.field_selector = Some(NO_OBJECT.to_owned());
        }
        let request = async {
            let request = Request::new(&self.path).list(&params).map_err(kube::Error::BuildRequest)?;
            self.client.request::<Page<K>>(request).await
        };
        let page = send_to(self.origin, RESPONSE_TIMEOUT, self.operation("list"), request).await?;
        let next = if let Some(token) = page.metadata.r#continue.filter(|token| !token.0.is_empty()) {
            Next::Page(Some(token.0))
        } else {
            let version = page.metadata.resource_version.filter(|version| !version.0.is_empty());
            Next::Watch(version.ok_or(WatchError::NoResourceVersion { kind: self.kind })?.0)
        };
        Ok(State::Listing { page: page.items.0.into(), next, pages: pages + 1 })
    }

    async fn watch(&self, version: &str) -> Result<Body, WatchError> {
        let params = WatchParams { label_selector: self.labels.clone(), ..WatchParams::default() };
        let request = async {
            let request = Request::new(&self.path).watch(&params, version).map_err(kube::Error::BuildRequest)?;
            self.client.request_stream(request).await
        };
        match send_to(self.origin, RESPONSE_TIMEOUT, self.operation("watch"), request).await {
            Ok(body) => Ok(Box::pin(body)),
            Err(error) => Err(error.into()),
        }
    }

    fn operation(&self, verb: &'static str) -> Operation {
        Operation::new(verb, format!("{}s", self.kind))
    }

    fn request_error(&self, verb: &'static str, source: kube::Error) -> RequestError {
        RequestError::Failed { operation: self.operation(verb), source, origin: self.origin }
    }
}

enum Decoded<K> {
    Apply(K),
    Delete(K),
    /// The version to continue from. A bookmark has no name.
    Bookmark(Option<String>),
    /// The version to continue from is too old.
    Expired,
}

#[derive(Deserialize)]
struct WatchLine<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

fn decode<K: DeserializeOwned>(line: &str, kind: &'static str) -> Result<Decoded<K>, WatchError> {
    let invalid = |_| WatchError::InvalidEvent { kind };
    let event: WatchLine<'_> = serde_json::from_str(line).map_err(invalid)?;
    let object = || serde_json::from_str(event.object.get()).map_err(invalid);
    match event.r#type {
        "ADDED" | "MODIFIED" => Ok(Decoded::Apply(object()?)),
        "DELETED" => Ok(Decoded::Delete(object()?)),
        "BOOKMARK" => {
            let bookmark: WireIdentity = serde_json::from_str(event.object.get()).map_err(invalid)?;
            Ok(Decoded::Bookmark(bookmark.metadata.resource_version.map(|version| version.0)))
        }
        "ERROR" => {
            let status: WireStatus = serde_json::from_str(event.object.get()).map_err(invalid)?;
            let WireStatus { code, message } = status;
            if code == 410 { Ok(Decoded::Expired) } else { Err(WatchError::Failed { kind, code, text: message.0 }) }
        }
        _ => Err(WatchError::InvalidEvent { kind }),
    }
}

/// Name and version of the object of an event that is cut off or cannot be decoded.
fn identify(line: &str) -> Option<IdentityMeta> {
    #[derive(Deserialize)]
    struct IdentifiedEvent {
        object: WireIdentity,
    }
    let event = serde_json::from_str::<IdentifiedEvent>(line);
    let event = event.or_else(|_| serde_json::from_str::<IdentifiedEvent>(&complete(line)));
    event.ok().map(|event| event.object.metadata).filter(|metadata| metadata.name.is_some())
}

#[cfg(test)]
mod tests {
    use super::super::requests::tests::responding_client;
    use super::super::wire::WorkloadNode;
    use super::*;

    #[test]
    fn watch_event_is_decoded_with_limits() {
        let event = |type_: &str, object: &str| {
            decode::<WorkloadNode>(&format!("{{\"type\":\"{type_}\",\"object\":{object}}}"), "Node")
        };
        let node =
            r#"{"metadata":{"name":"n1","resourceVersion":"7","labels":{"a":"b"},"managedFields":[{}]},"spec":{}}"#;
        let Ok(Decoded::Apply(WorkloadNode(applied))) = event("ADDED", node) else { panic!("a Node") };
        assert_eq!((applied.name_any().as_str(), applied.resource_version().as_deref()), ("n1", Some("7")));
        assert!(applied.labels().is_empty() && applied.metadata.managed_fields.is_none());
        assert!(matches!(event("DELETED", node), Ok(Decoded::Delete(_))));
        assert!(matches!(event("ERROR", r#"{"code":410}"#), Ok(Decoded::Expired)));
        let text = "secret text".repeat(100_000);
        let failed = event("ERROR", &format!("{{\"code\":500,\"message\":\"{text}\"}}")).err().unwrap();
        assert_eq!(failed.to_string(), "the watch of Nodes failed with code 500");
        assert!(failed.text().contains("secret text") && failed.text().len() < 600);

        let bookmark = event("BOOKMARK", r#"{"kind":"Node","metadata":{"resourceVersion":"8"}}"#);
        assert!(matches!(bookmark, Ok(Decoded::Bookmark(Some(version))) if version == "8"));

        let taints =
            format!("{{\"metadata\":{{\"name\":\"n1\"}},\"spec\":{{\"taints\":[{}{{}}]}}}}", "{},".repeat(100_000));
        let long = format!(
            "{{\"metadata\":{{\"name\":\"n1\"}},\"spec\":{{\"taints\":[{{\"key\":\"{}\"}}]}}}}",
            "a".repeat(1000)
        );
        let nested = format!("{{\"metadata\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
        for object in [&taints, &long, &nested, "{}", r#"{"metadata":{"name":"../n1"}}"#, "[]", "1"] {
            assert!(matches!(event("ADDED", object), Err(WatchError::InvalidEvent { .. })));
        }
        assert!(matches!(event("OTHER", node), Err(WatchError::InvalidEvent { .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn event_that_is_cut_off_or_invalid_concerns_one_object() {
        let node = |name: &str, version: u32| {
            format!(
                r#"{{"type":"MODIFIED","object":{{"kind":"Node","metadata":{{"name":"{name}","resourceVersion":"{version}","labels":{{}}}},"spec":{{"taints":null}},"status":{{"images":["#
            )
        };
        let end = "]}}}\n";
        let taints = node("n3", 4).replace("null", &format!("[{}{{}}]", "{},".repeat(1000)));
        let lines =
            [node("n1", 2) + end, node("n2", 3) + "{\"names\":[\"aaa\n", taints + end, node("n1", 5) + end].concat();
        let respond = move |path: &str| match path {
            _ if path.contains("watch=true") && path.contains("resourceVersion=1") => lines.clone(),
            _ if path.contains("watch=true") => String::new(),
            _ => {
                assert!(path.contains("fieldSelector=metadata.name"), "{path}");
                r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#.to_owned()
            }
        };
        let of = ListWatch {
            client: responding_client(respond),
            origin: Origin::Workload,
            kind: "Node",
            path: "/api/v1/nodes".to_owned(),
            labels: None,
            objects: Objects::ReadByName,
        };
        let events: Vec<_> = list_watch::<WorkloadNode>(of).take(6).collect().await;
        let names = events.iter().map(|event| match event {
            Ok(Event::Init) => "start".to_owned(),
            Ok(Event::InitDone) => "end".to_owned(),
            Ok(Event::Apply(node)) => node.name_any(),
            Err(WatchError::Skipped { name, .. }) => format!("skipped {name}"),
            other => panic!("{other:?}"),
        });
        assert_eq!(names.collect::<Vec<_>>(), ["start", "end", "n1", "skipped n2", "skipped n3", "n1"]);
    }

    #[test]
    fn page_with_too_many_items_is_not_decoded() {
        let page = |items: usize| {
            let items = vec![r#"{"metadata":{"name":"n1"}}"#; items].join(",");
            serde_json::from_str::<Page<WorkloadNode>>(&format!("{{\"items\":[{items}]}}"))
        };
        assert_eq!(page(500).unwrap().items.0.len(), 500);
        assert!(page(501).unwrap_err().to_string().contains("more than 500 items"));
        assert!(serde_json::from_str::<Page<WorkloadNode>>(r#"{"items":null}"#).unwrap().items.0.is_empty());
    }
}
