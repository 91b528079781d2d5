//! Pods that the API server of the workload cluster did not accept to evict or delete.

use std::collections::BTreeMap;

use fivespot_validation::names::{is_dns_label, is_dns_subdomain};

/// A pod whose eviction or deletion was not accepted. The others are evicted or deleted regardless.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RejectedPod {
    pub namespace: String,
    pub name: String,
    pub cause: Rejection,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Rejection {
    /// A PodDisruptionBudget blocks the eviction; with its name, if the API server names one.
    Blocked { budget: Option<String> },
    /// No eviction is accepted in a namespace that is terminating, which deletes the pod itself.
    NamespaceTerminating,
    /// Any other response to an eviction, by HTTP status; `None` if there was none.
    Eviction { code: Option<u16> },
    /// Any other response to a deletion, by HTTP status; `None` if there was none.
    Deletion { code: Option<u16> },
}

/// How many causes a message lists.
const MAX_CAUSES: usize = 5;
/// How many pods a message lists for one cause.
const MAX_NAMES: usize = 3;

/// "2 blocked by PodDisruptionBudget team/web, 1 in terminating namespace old, eviction of pod a/b rejected with HTTP status
/// 403". Bounded, and without any text of the workload cluster's API server except valid names: that server is not trusted.
pub fn describe(pods: &[RejectedPod]) -> Option<String> {
    let mut counted: BTreeMap<String, usize> = BTreeMap::new();
    let mut named: BTreeMap<(&str, Option<u16>), Vec<String>> = BTreeMap::new();
    for pod in pods {
        let namespace = if is_dns_label(&pod.namespace) { &pod.namespace } else { INVALID_NAME };
        match &pod.cause {
            Rejection::Blocked { budget } => {
                let cause = match budget.as_ref().filter(|budget| is_dns_subdomain(budget)) {
                    Some(budget) => format!("blocked by PodDisruptionBudget {namespace}/{budget}"),
                    None => format!("blocked by PodDisruptionBudgets in namespace {namespace}"),
                };
                *counted.entry(cause).or_default() += 1;
            }
            Rejection::NamespaceTerminating => {
                *counted.entry(format!("in terminating namespace {namespace}")).or_default() += 1;
            }
            Rejection::Eviction { code } => named.entry(("eviction", *code)).or_default().push(qualified(pod)),
            Rejection::Deletion { code } => named.entry(("deletion", *code)).or_default().push(qualified(pod)),
        }
    }
    let counted = counted.into_iter().map(|(cause, count)| (format!("{count} {cause}"), count));
    let named = named.into_iter().map(|((request, code), mut pods)| {
        pods.sort_unstable();
        let list = list(&pods);
        let cause = match code {
            Some(code) => format!("{request} of {list} rejected with HTTP status {code}"),
            None => format!("no response to {request} of {list}"),
        };
        (cause, pods.len())
    });
    let causes: Vec<(String, usize)> = counted.chain(named).collect();
    let listed = causes.iter().take(MAX_CAUSES).map(|(cause, _)| cause.clone());
    let others: usize = causes.iter().skip(MAX_CAUSES).map(|(_, count)| count).sum();
    let more = (others > 0).then(|| format!("{others} rejected for other reasons"));
    let parts: Vec<String> = listed.chain(more).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

const INVALID_NAME: &str = "(invalid name)";

fn qualified(pod: &RejectedPod) -> String {
    if is_dns_label(&pod.namespace) && is_dns_subdomain(&pod.name) {
        format!("{}/{}", pod.namespace, pod.name)
    } else {
        INVALID_NAME.to_owned()
    }
}

/// "pod a/b", "pods a/b, a/c, a/d and 2 more".
fn list(pods: &[String]) -> String {
    let names = pods[..pods.len().min(MAX_NAMES)].join(", ");
    match pods.len().saturating_sub(MAX_NAMES) {
        0 if pods.len() == 1 => format!("pod {names}"),
        0 => format!("pods {names}"),
        more => format!("pods {names} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected(name: &str, cause: Rejection) -> RejectedPod {
        RejectedPod { namespace: "team".to_owned(), name: name.to_owned(), cause }
    }

    #[test]
    fn every_cause_is_named() {
        let blocked = |budget: Option<&str>| Rejection::Blocked { budget: budget.map(str::to_owned) };
        let pods = [
            rejected("a", blocked(Some("web"))),
            rejected("b", blocked(Some("web"))),
            rejected("c", blocked(None)),
            rejected("d", Rejection::NamespaceTerminating),
            rejected("e", Rejection::Eviction { code: Some(403) }),
            rejected("f", Rejection::Eviction { code: None }),
        ];
        assert_eq!(
            describe(&pods).unwrap(),
            "2 blocked by PodDisruptionBudget team/web, 1 blocked by PodDisruptionBudgets in namespace team, 1 in \
             terminating namespace team, no response to eviction of pod team/f, eviction of pod team/e rejected with \
             HTTP status 403"
        );
        assert_eq!(describe(&[]), None);
    }

    #[test]
    fn order_of_responses_does_not_matter() {
        let mut pods: Vec<RejectedPod> =
            ["d", "b", "a", "c"].map(|name| rejected(name, Rejection::Deletion { code: Some(422) })).into();
        let text = describe(&pods).unwrap();
        assert_eq!(text, "deletion of pods team/a, team/b, team/c and 1 more rejected with HTTP status 422");
        pods.reverse();
        assert_eq!(describe(&pods).unwrap(), text);
    }

    #[test]
    fn hostile_server_cannot_write_the_message() {
        let long = "x".repeat(1_000_000);
        let budget = |budget: &str| Rejection::Blocked { budget: Some(budget.to_owned()) };
        let pods: Vec<RejectedPod> = (0..1_000_u16)
            .flat_map(|it| {
                [
                    rejected("a", budget(&format!("web-{it}"))),
                    rejected("a", budget("web is fine. <script>")),
                    RejectedPod { namespace: long.clone(), ..rejected(&long, Rejection::Eviction { code: Some(it) }) },
                ]
            })
            .collect();
        let text = describe(&pods).unwrap();
        assert!(text.len() < 2_000, "{} bytes", text.len());
        assert!(!text.contains("script") && text.ends_with("rejected for other reasons"), "{text}");
    }
}
