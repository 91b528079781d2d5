//! Brings a request to the API server, however long that takes.
//!
//! Guarantee: [`Store::request`] ends when the request is stored, or when the Node turns out to be another machine's.
//! Nothing else ends it: an API server that is away, or a right that is missing, may come back.
//!
//! An answer that does not come must not hold up the request once the API server is back. So a first attempt may take
//! its time, and when it is silent others follow it, each on a connection of its own.

use std::time::Duration;

use fivespot_api::keys;
use http::StatusCode;
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
/// Too much to do, or somebody else has written the Node meanwhile.
const PASSING: [StatusCode; 3] =
    [StatusCode::TOO_MANY_REQUESTS, StatusCode::CONFLICT, StatusCode::UNPROCESSABLE_ENTITY];
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
    /// No answer, or one that may be another the next time.
    #[error("{0}")]
    Passing(String),
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
        let (mut backoff, mut last, mut told) = (Backoff::new(), SOON, String::new());
        loop {
            let (trouble, most) = match self.attempt(&wanted).await {
                Ok(()) => return Ok(()),
                Err(Trouble::AnotherMachine(it)) => return Err(it),
                Err(Trouble::Passing(it)) => (it, SOON),
                Err(Trouble::Lasting(it)) => (it, LATER),
            };
            // An API server that has just come back refuses everybody for a moment.
            if std::mem::replace(&mut last, most) < most {
                backoff = Backoff::new();
            }
            // Once for each reason: it may be tried a thousand times.
            if trouble != told {
                let node = &self.target.node;
                warn!(node, reason = trouble, "the request is not stored yet; it is tried again until it is");
                told = trouble;
            }
            sleep(backoff.next(most)).await;
        }
    }

    /// Ends when the request is there no more.
    pub(crate) async fn cleared(self) {
        loop {
            sleep(LOOK_EVERY).await;
            match timeout(PATIENT, self.look()).await {
                Ok(Ok(node)) if !is_requested(&node) => return,
                // With its Node the request is gone too.
                Ok(Err(Answer::Refused(StatusCode::NOT_FOUND, _))) => return,
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
            Err(Answer::Refused(StatusCode::UNPROCESSABLE_ENTITY, why)) => {
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
            _ => Err(Trouble::Passing(why)),
        }
    }

    /// The patch, by whichever way is answered first.
    async fn send(&self, wanted: &Wanted, form: &Form) -> Result<Vec<u8>, Answer> {
        let patch = || self.target.patch(wanted, form).map_err(|it| Answer::None(it.to_string()));
        let patient = async { timeout(PATIENT, ask(&self.client, patch()?)).await.unwrap_or_else(|_| Err(silent())) };
        let impatient = async {
            sleep(SILENCE).await;
            loop {
                if let Ok(client) = self.cluster.client()
                    && let Ok(Ok(stored)) = timeout(IMPATIENT, async { ask(&client, patch()?).await }).await
                {
                    info!(node = self.target.node, "answered on another connection");
                    return Ok(stored);
                }
                sleep(PAUSE).await;
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
    Refused(StatusCode, String),
    /// It says nothing.
    None(String),
}

fn silent() -> Answer {
    Answer::None("the API server does not answer".to_owned())
}

impl Answer {
    fn trouble(self, node: &str) -> Trouble {
        match self {
            Answer::None(why) => Trouble::Passing(format!("the API server cannot be reached: {why}")),
            Answer::Refused(StatusCode::NOT_FOUND, _) => {
                Trouble::Lasting(format!("there is no Node '{node}': is --node-name (NODE_NAME) right?"))
            }
            Answer::Refused(code @ (StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED), why) => {
                Trouble::Lasting(format!("the API server refuses it ({code}): {why}; see deploy/node-agent"))
            }
            Answer::Refused(code, why) if code.is_server_error() || PASSING.contains(&code) => {
                Trouble::Passing(format!("the API server answers {code}: {why}"))
            }
            Answer::Refused(code, why) => Trouble::Lasting(format!("the API server answers {code}: {why}")),
        }
    }
}

async fn ask(client: &Client, request: http::Request<Vec<u8>>) -> Result<Vec<u8>, Answer> {
    let failed = |it: kube::Error| Answer::None(fivespot_entry::chain(&it));
    let answer = client.send(request.map(Body::from)).await.map_err(failed)?;
    let code = answer.status();
    let body = answer.into_body().collect_bytes().await.map_err(failed)?.to_vec();
    if code.is_success() {
        return Ok(body);
    }
    let said = serde_json::from_slice::<Status>(&body).map(|it| it.message);
    Err(Answer::Refused(code, said.unwrap_or_else(|_| String::from_utf8_lossy(&body).into_owned())))
}
