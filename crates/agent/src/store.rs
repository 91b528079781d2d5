//! Brings a request to the API server, however long that takes.
//!
//! Guarantee: [`Store::request`] ends when the request is stored, or when the Node turns out to be another machine's.
//! Nothing else ends it: an API server that is away, or a right that is missing, may come back.
//!
//! An answer that does not come must not hold up the request once the API server is back. So a first attempt may take
//! its time, and when it is silent others follow it, each on a connection of its own.

use std::time::{Duration, Instant};

use fivespot_api::keys;
use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use serde::Deserialize;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::backoff::Backoff;
use crate::cluster::Cluster;
use crate::request::{Form, Target, Wanted};

/// How long an attempt may take when nothing is known to be wrong.
const PATIENT: Duration = Duration::from_secs(15);
/// A silence that is long enough to look for another way.
const SILENCE: Duration = Duration::from_secs(1);
/// How long another way may take, and the pause before the next.
const IMPATIENT: Duration = Duration::from_millis(600);
const PAUSE: Duration = Duration::from_millis(200);
/// What may pass by itself is tried again soon, what takes a person later.
const SOON: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(30);
/// A pause that the API server asks for is made up to here: somebody waits for their machine.
const AS_ASKED: Duration = Duration::from_secs(5);
/// Reasons that change with each attempt (a load balancer numbers its answers) are told so often.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// So much of an answer is told. It may be a page that was made for a browser.
const TOLD: usize = 1000;
/// Somebody else has written the Node meanwhile.
const PASSING: [StatusCode; 2] = [StatusCode::CONFLICT, StatusCode::UNPROCESSABLE_ENTITY];
/// How often a stored request is looked at until it is cleared. The account may not watch Nodes.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The Node is another machine's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Node '{node}' is the machine '{theirs}', and this is '{ours}': nothing was written. Is --node-name (NODE_NAME) the Node \
     of this machine, and --machine-id-path its machine-id? If machine-ids are not to be compared: --skip-host-id-check"
)]
pub(crate) struct AnotherMachine {
    node: String,
    theirs: String,
    ours: String,
}

/// Why an attempt did not store the request.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    AnotherMachine(AnotherMachine),
    /// No answer, or one that may be another the next time, after this pause at least.
    #[error("{0}")]
    Passing(String, Duration),
    /// It stays so until somebody does something.
    #[error("{0}")]
    Lasting(String),
}

/// What is read of a Node.
#[derive(Debug, Deserialize)]
struct Node {
    metadata: kube::core::ObjectMeta,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeStatus {
    #[serde(default)]
    node_info: NodeInfo,
}

#[derive(Debug, Default, Deserialize)]
struct NodeInfo {
    #[serde(default, rename = "machineID")]
    machine_id: String,
}

/// Where requests are kept: on a Node.
#[derive(Clone)]
pub(crate) struct Store {
    pub(crate) cluster: Cluster,
    /// Its connection is warm.
    pub(crate) client: Client,
    pub(crate) target: Target,
}

impl Store {
    /// Ends when it is stored.
    pub(crate) async fn request(self, wanted: Wanted) -> Result<(), AnotherMachine> {
        let (mut backoff, mut last, mut told) = (Backoff::new(), SOON, None);
        loop {
            let (trouble, least, most) = match self.attempt(&wanted).await {
                Ok(()) => return Ok(()),
                Err(Trouble::AnotherMachine(it)) => return Err(it),
                Err(Trouble::Passing(it, pause)) => (it, pause, SOON),
                Err(Trouble::Lasting(it)) => (it, Duration::ZERO, LATER),
            };
            // An API server that has just come back refuses everybody for a moment.
            if std::mem::replace(&mut last, most) < most {
                backoff = Backoff::new();
            }
            self.tell(trouble, &mut told);
            sleep(backoff.next(most).max(least)).await;
        }
    }

    /// Once for each reason: it may be tried a thousand times.
    fn tell(&self, reason: String, told: &mut Option<(String, Instant)>) {
        if told.as_ref().is_none_or(|(last, at)| *last != reason && at.elapsed() >= TELL_EVERY) {
            let node = &self.target.node;
            warn!(node, reason, "the request is not stored yet; it is tried again until it is");
            *told = Some((reason, Instant::now()));
        }
    }

    /// Ends when the request is there no more.
    pub(crate) async fn cleared(self) {
        loop {
            sleep(LOOK_EVERY).await;
            match timeout(PATIENT, self.look()).await {
                Ok(Ok(node)) if !is_requested(&node) => return,
                // With its Node the request is gone too.
                Ok(Err(Answer::Refused(Refusal { code: StatusCode::NOT_FOUND, .. }))) => return,
                // Whoever clears it has to reach the API server as well.
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// Whether the Node is this machine's, as far as can be seen now. Better told when it is armed than when it matters.
    pub(crate) async fn compare(self) -> Result<(), AnotherMachine> {
        let Some(ours) = &self.target.machine_id else { return Ok(()) };
        match timeout(PATIENT, self.look()).await {
            Ok(Ok(node)) => self.identify(&node, ours),
            // What is in the way will be told when it matters; the API server compares then too.
            Ok(Err(_)) | Err(_) => Ok(()),
        }
    }

    /// Ends when the Node is this machine's after all.
    pub(crate) async fn recognised(self) {
        loop {
            sleep(LATER).await;
            if let Ok(Ok(node)) = timeout(PATIENT, self.look()).await
                && self.target.machine_id.as_ref().is_none_or(|ours| node.status.node_info.machine_id == *ours)
            {
                return;
            }
        }
    }

    fn identify(&self, node: &Node, ours: &str) -> Result<(), AnotherMachine> {
        let theirs = &node.status.node_info.machine_id;
        // Its kubelet has not said yet which machine it is.
        if theirs == ours || theirs.is_empty() {
            return Ok(());
        }
        Err(AnotherMachine { node: self.target.node.clone(), theirs: theirs.clone(), ours: ours.to_owned() })
    }

    async fn attempt(&self, wanted: &Wanted) -> Result<(), Trouble> {
        let answer = match self.send(wanted, &Form::Add).await {
            Err(Answer::Refused(Refusal { code: StatusCode::UNPROCESSABLE_ENTITY, why, .. })) => {
                let form = self.explain(why).await?;
                self.send(wanted, &form).await
            }
            answer => answer,
        };
        answer.map(drop).map_err(|it| it.trouble(&self.target.node))
    }

    /// The API server does not say which operation of a patch it stumbled over. Another form may do.
    async fn explain(&self, why: String) -> Result<Form, Trouble> {
        let node = &self.target.node;
        let Some(ours) = &self.target.machine_id else { return Err(Trouble::Lasting(why)) };
        let seen = timeout(PATIENT, self.look()).await.unwrap_or_else(|_| Err(silent()));
        let seen = seen.map_err(|it| it.trouble(node))?;
        self.identify(&seen, ours).map_err(Trouble::AnotherMachine)?;
        if seen.status.node_info.machine_id.is_empty() {
            let why = format!("Node '{node}' has no status.nodeInfo.machineID: its kubelet has not told it");
            return Err(Trouble::Lasting(why));
        }
        match (seen.metadata.annotations, seen.metadata.resource_version) {
            (None, Some(resource_version)) => Ok(Form::Begin { resource_version }),
            _ => Err(Trouble::Passing(why, Duration::ZERO)),
        }
    }

    /// The patch, by whichever way is answered first.
    async fn send(&self, wanted: &Wanted, form: &Form) -> Result<Vec<u8>, Answer> {
        let patch = || self.target.patch(wanted, form).map_err(|it| Answer::None(it.to_string()));
        let patient = async { timeout(PATIENT, ask(&self.client, patch()?)).await.unwrap_or_else(|_| Err(silent())) };
        let impatient = async {
            sleep(SILENCE).await;
            let mut backoff = Backoff::new();
            loop {
                let another = async {
                    let client = self.cluster.client().map_err(unreachable)?;
                    ask(&client, patch()?).await
                };
                let pause = match timeout(IMPATIENT, another).await {
                    // It has too much to do already. The first attempt keeps its place there.
                    Ok(Err(Answer::Refused(it))) if it.is_busy() => backoff.next(SOON).max(it.pause),
                    Ok(answer @ (Ok(_) | Err(Answer::Refused(_)))) => {
                        info!(node = self.target.node, "answered on another connection");
                        return answer;
                    }
                    Ok(Err(Answer::None(_))) | Err(_) => PAUSE,
                };
                sleep(pause).await;
            }
        };
        tokio::select! {
            answer = patient => answer,
            answer = impatient => answer,
        }
    }

    async fn look(&self) -> Result<Node, Answer> {
        let get = self.target.get().map_err(|it| Answer::None(it.to_string()))?;
        let body = ask(&self.client, get).await?;
        serde_json::from_slice(&body).map_err(|it| Answer::None(format!("the Node cannot be read: {it}")))
    }
}

fn is_requested(node: &Node) -> bool {
    let annotations = node.metadata.annotations.as_ref();
    let requested = annotations.and_then(|it| it.get(keys::RECLAIM_REQUESTED_ANNOTATION));
    requested.is_some_and(|it| it == keys::RECLAIM_REQUESTED)
}

/// An answer that is not what was asked for.
enum Answer {
    /// What the API server says.
    Refused(Refusal),
    /// It says nothing.
    None(String),
}

struct Refusal {
    code: StatusCode,
    why: String,
    /// What it asks to wait for.
    pause: Duration,
}

impl Refusal {
    /// Whether it has too much to do, or is not itself.
    fn is_busy(&self) -> bool {
        self.code.is_server_error() || self.code == StatusCode::TOO_MANY_REQUESTS
    }

    /// Whether it may be another answer the next time.
    fn passes(&self) -> bool {
        self.is_busy() || PASSING.contains(&self.code)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is given away by who maps errors")]
fn unreachable(error: kube::Error) -> Answer {
    Answer::None(fivespot_cli_support::chain(&error))
}

fn silent() -> Answer {
    Answer::None("the API server does not answer".to_owned())
}

impl Answer {
    fn trouble(self, node: &str) -> Trouble {
        match self {
            Answer::None(why) => Trouble::Passing(format!("the API server cannot be reached: {why}"), Duration::ZERO),
            Answer::Refused(Refusal { code: StatusCode::NOT_FOUND, .. }) => {
                Trouble::Lasting(format!("there is no Node '{node}': is --node-name (NODE_NAME) right?"))
            }
            Answer::Refused(Refusal {
                code: code @ (StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED), why, ..
            }) => Trouble::Lasting(format!("the API server refuses it ({code}): {why}; see deploy/node-agent")),
            Answer::Refused(refusal) => {
                let said = format!("the API server answers {}: {}", refusal.code, refusal.why);
                if refusal.passes() { Trouble::Passing(said, refusal.pause) } else { Trouble::Lasting(said) }
            }
        }
    }
}

async fn ask(client: &Client, request: http::Request<Vec<u8>>) -> Result<Vec<u8>, Answer> {
    let answer = client.send(request.map(Body::from)).await.map_err(unreachable)?;
    let (code, pause) = (answer.status(), pause(answer.headers()));
    let body = answer.into_body().collect_bytes().await.map_err(unreachable)?.to_vec();
    if code.is_success() {
        return Ok(body);
    }
    let said = serde_json::from_slice::<Status>(&body).map(|it| it.message);
    let why = said.unwrap_or_else(|_| String::from_utf8_lossy(&body).into_owned());
    Err(Answer::Refused(Refusal { code, why: why.trim().chars().take(TOLD).collect(), pause }))
}

/// What the answer asks to wait for, in seconds. The other form of it, a date, no API server uses.
fn pause(headers: &HeaderMap) -> Duration {
    let seconds = headers.get(RETRY_AFTER).and_then(|it| it.to_str().ok()?.parse().ok());
    seconds.map(Duration::from_secs).unwrap_or_default().min(AS_ASKED)
}
