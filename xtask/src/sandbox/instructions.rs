//! What the sandbox prints when it is ready: how to connect, and commands to try.

use std::fmt;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use super::machines::OPEN_NOW;
use super::shell_quote;

/// The ScheduledMachine of the example.
const BUSINESS_HOURS: &str = "business-hours-worker";

/// Clears the example's overrides too, because it is closed on holidays.
const AROUND_THE_CLOCK: &str = r#"{"schedule":{"daysOfWeek":["mon-sun"],"hoursOfDay":["0-23"],"overrides":[]}}"#;

pub(super) struct Instructions {
    /// How long the sandbox took to start.
    pub(super) startup: Duration,
    pub(super) kubeconfig: PathBuf,
    /// The directory with kubectl and its plugin.
    pub(super) programs: PathBuf,
    pub(super) manifest: PathBuf,
    pub(super) logs: PathBuf,
    pub(super) metrics_port: u16,
}

impl Instructions {
    /// Prints the instructions. Ignores errors: a closed standard output must not end the sandbox.
    pub(super) fn print(&self) {
        let mut out = std::io::stdout();
        let _ = writeln!(out, "{self}").and_then(|()| out.flush());
    }
}

/// A command to try.
struct Suggestion {
    command: String,
    description: &'static str,
}

/// Commands that only read.
fn read_commands() -> Vec<Suggestion> {
    [
        ("kubectl get sm".to_owned(), "two machines: one is Active, one has business hours"),
        (format!("kubectl describe sm {OPEN_NOW}"), "conditions and events"),
        ("kubectl get machines,nodes,pods".to_owned(), "its Machine, its Node, and the pods on it"),
        (format!("kubectl 5spot timeline {BUSINESS_HOURS}"), "the week of the other machine"),
        ("kubectl get sm --watch".to_owned(), "keep this running in a third terminal"),
    ]
    .map(|(command, description)| Suggestion { command, description })
    .into()
}

/// Commands that change something.
fn write_commands() -> Vec<Suggestion> {
    let patch = |name: &str, spec: &str| format!("kubectl patch sm {name} --type=merge -p '{{\"spec\":{spec}}}'");
    [
        (patch(OPEN_NOW, r#"{"killSwitch":true}"#), "Remove the machine immediately, without draining"),
        (patch(OPEN_NOW, r#"{"killSwitch":false}"#), "Follow the schedule again, which is open"),
        (patch(OPEN_NOW, r#"{"schedule":{"enabled":false}}"#), "Disable the schedule: the machine stays as it is"),
        (patch(OPEN_NOW, r#"{"schedule":{"enabled":true}}"#), "Enable the schedule again"),
        (
            patch(OPEN_NOW, r#"{"killIfCommands":["idea"]}"#),
            "Let the owner reclaim the machine: adds a label to its Node",
        ),
        (request_reclaim(OPEN_NOW), "Do what the agent does when the owner starts idea: an emergency reclaim"),
        (patch(OPEN_NOW, r#"{"schedule":{"enabled":true}}"#), "Enable the schedule again, which the reclaim disabled"),
        (patch(BUSINESS_HOURS, AROUND_THE_CLOCK), "Open the schedule of the other machine around the clock"),
        (
            patch(BUSINESS_HOURS, r#"{"schedule":{"timezone":"Mars/Olympus"}}"#),
            "Set an invalid time zone; kubectl describe shows the error",
        ),
    ]
    .map(|(command, description)| Suggestion { command, description })
    .into()
}

/// Sets the annotation that the reclaim agent sets. Simulated machines run no agent.
fn request_reclaim(name: &str) -> String {
    let node = format!("$(kubectl get sm {name} -o jsonpath='{{.status.nodeRef.name}}')");
    format!("kubectl annotate node \"{node}\" 5spot.finos.org/reclaim-requested=true")
}

impl fmt::Display for Instructions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "\nThe sandbox is ready after {} s. In another terminal, run:\n", self.startup.as_secs())?;
        writeln!(out, "  export KUBECONFIG={}", shell_quote(&self.kubeconfig))?;
        writeln!(out, "  export PATH={}:\"$PATH\"\n", shell_quote(&self.programs))?;
        for Suggestion { command, description } in read_commands() {
            writeln!(out, "  {command:<44}  # {description}")?;
        }
        writeln!(out, "\nThen change something:\n")?;
        for Suggestion { command, description } in write_commands() {
            writeln!(out, "  # {description}\n  {command}")?;
        }
        writeln!(
            out,
            "\nThe window of {OPEN_NOW} closes in ten minutes, for two minutes: the machine is drained, removed and recreated."
        )?;
        writeln!(out, "Its manifest:  {}", shell_quote(&self.manifest))?;
        writeln!(out, "Logs:          {} (5spot.log is the controller's)", shell_quote(&self.logs))?;
        writeln!(out, "Metrics:       http://127.0.0.1:{}/metrics", self.metrics_port)?;
        write!(out, "\nPress Ctrl-C to stop the sandbox and all its processes.")
    }
}
