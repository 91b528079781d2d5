//! What a person reads when the sandbox is up: how to look at it, and what to try.

use std::fmt;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use super::machines::OPEN_NOW;
use super::shown;

/// The machine of the example.
const SCHEDULED: &str = "business-hours-worker";

/// Without the example's holidays, or it would not come on one.
const AROUND_THE_CLOCK: &str = r#"{"schedule":{"daysOfWeek":["mon-sun"],"hoursOfDay":["0-23"],"overrides":[]}}"#;

/// What there is to say.
pub(super) struct Guide {
    pub(super) took: Duration,
    pub(super) kubeconfig: PathBuf,
    pub(super) programs: PathBuf,
    pub(super) manifest: PathBuf,
    pub(super) logs: PathBuf,
    pub(super) metrics_port: u16,
}

impl Guide {
    /// Prints it. If nobody can read it, that is no reason to end.
    pub(super) fn print(&self) {
        let mut out = std::io::stdout();
        let _ = writeln!(out, "{self}").and_then(|()| out.flush());
    }
}

/// One command, and what it is good for.
struct Try {
    command: String,
    shows: &'static str,
}

fn looks() -> Vec<Try> {
    [
        ("kubectl get sm".to_owned(), "two machines: one is in, one keeps office hours"),
        (format!("kubectl describe sm {OPEN_NOW}"), "why it is as it is: conditions and events"),
        ("kubectl get machines,nodes,pods".to_owned(), "what it became: a Machine, a Node, pods on it"),
        (format!("kubectl 5spot timeline {SCHEDULED}"), "the week of the other"),
        ("kubectl get sm --watch".to_owned(), "keep this running in a third terminal"),
    ]
    .map(|(command, shows)| Try { command, shows })
    .into()
}

fn changes() -> Vec<Try> {
    let patch = |name: &str, spec: &str| format!("kubectl patch sm {name} --type=merge -p '{{\"spec\":{spec}}}'");
    [
        (patch(OPEN_NOW, r#"{"killSwitch":true}"#), "out at once, without a drain"),
        (patch(OPEN_NOW, r#"{"killSwitch":false}"#), "back to its schedule, so in again"),
        (patch(OPEN_NOW, r#"{"schedule":{"enabled":false}}"#), "leave it as it is, whatever the clock says"),
        (patch(OPEN_NOW, r#"{"schedule":{"enabled":true}}"#), "mind the clock again"),
        (patch(OPEN_NOW, r#"{"killIfCommands":["idea"]}"#), "its owner may ask for it: see the labels of its Node"),
        (ask(OPEN_NOW), "what the agent writes when its owner starts idea: it is theirs again, and stays so"),
        (patch(OPEN_NOW, r#"{"schedule":{"enabled":true}}"#), "lend it out again"),
        (patch(SCHEDULED, AROUND_THE_CLOCK), "the other around the clock, so it comes now"),
        (patch(SCHEDULED, r#"{"schedule":{"timezone":"Mars/Olympus"}}"#), "a mistake, and kubectl describe says which"),
    ]
    .map(|(command, shows)| Try { command, shows })
    .into()
}

/// What the reclaim agent does. There is none on machines that only pretend to be.
fn ask(name: &str) -> String {
    let node = format!("$(kubectl get sm {name} -o jsonpath='{{.status.nodeRef.name}}')");
    format!("kubectl annotate node \"{node}\" 5spot.finos.org/reclaim-requested=true")
}

impl fmt::Display for Guide {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "\nThe sandbox is up, after {} s. In another terminal:\n", self.took.as_secs())?;
        writeln!(out, "  export KUBECONFIG={}", shown(&self.kubeconfig))?;
        writeln!(out, "  export PATH={}:\"$PATH\"\n", shown(&self.programs))?;
        list(out, &looks())?;
        writeln!(out, "\nChange something, and see what happens:\n")?;
        for Try { command, shows } in changes() {
            writeln!(out, "  # {shows}:\n  {command}")?;
        }
        writeln!(out, "\n{OPEN_NOW} leaves by itself in ten minutes, gracefully, and comes back two minutes later.")?;
        writeln!(out, "Its manifest:  {}", shown(&self.manifest))?;
        writeln!(out, "Logs:          {} (5spot.log is the controller's)", shown(&self.logs))?;
        writeln!(out, "Metrics:       http://127.0.0.1:{}/metrics", self.metrics_port)?;
        write!(out, "\nCtrl-C ends it, and leaves nothing running.")
    }
}

fn list(out: &mut fmt::Formatter<'_>, commands: &[Try]) -> fmt::Result {
    for Try { command, shows } in commands {
        writeln!(out, "  {command:<44}  # {shows}")?;
    }
    Ok(())
}
