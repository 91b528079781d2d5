//! For how long the urgent objects of a namespace may hold other writes back.
//!
//! A reconcile may wait long, for a workload cluster, and a tenant may have urgent objects all the time. So each namespace has
//! a budget, which a reclaim does not use up: it takes a fraction of a second.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

pub(super) const MAX_BUDGET: Duration = Duration::from_secs(1);
/// A used budget is full again after this many times [`MAX_BUDGET`].
const REFILL: u32 = 5;

#[derive(Default)]
pub(super) struct UrgentReconciles {
    namespaces: HashMap<String, Budget>,
}

struct Budget {
    running: usize,
    /// When the first of the running reconciles started, or the last one ended.
    since: Instant,
    /// What was left then.
    left: Duration,
}

impl Budget {
    fn refilled(&self, now: Instant) -> Duration {
        let refill = now.saturating_duration_since(self.since) / REFILL;
        (self.left + refill).min(MAX_BUDGET)
    }
}

impl UrgentReconciles {
    pub(super) fn start(&mut self, namespace: &str, now: Instant) {
        // A full budget is the same as none.
        self.namespaces.retain(|_, budget| budget.running > 0 || budget.refilled(now) < MAX_BUDGET);
        let budget =
            self.namespaces.entry(namespace.to_owned()).or_insert(Budget { running: 0, since: now, left: MAX_BUDGET });
        if budget.running == 0 {
            *budget = Budget { running: 0, since: now, left: budget.refilled(now) };
        }
        budget.running += 1;
    }

    pub(super) fn end(&mut self, namespace: &str, now: Instant) {
        let Some(budget) = self.namespaces.get_mut(namespace) else { return };
        budget.running -= 1;
        if budget.running == 0 {
            budget.left = budget.left.saturating_sub(now.saturating_duration_since(budget.since));
            budget.since = now;
        }
    }

    #[cfg(test)]
    pub(super) fn is_any_running(&self) -> bool {
        self.namespaces.values().any(|budget| budget.running > 0)
    }

    pub(super) fn holds_others_back(&self, now: Instant) -> bool {
        let has_budget = |budget: &Budget| now.saturating_duration_since(budget.since) < budget.left;
        self.namespaces.values().any(|budget| budget.running > 0 && has_budget(budget))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn budget_ends_and_refills() {
        let mut urgent = UrgentReconciles::default();
        let start = Instant::now();
        urgent.start("a", start);
        urgent.start("a", start);
        assert!(urgent.holds_others_back(start));
        let half = start + MAX_BUDGET / 2;
        urgent.end("a", half);
        assert!(urgent.holds_others_back(half), "another one is running");
        urgent.end("a", half);
        assert!(!urgent.holds_others_back(half) && !urgent.is_any_running());

        // The rest of the budget, while another namespace has its own.
        urgent.start("a", half);
        let end = start + MAX_BUDGET;
        assert!(!urgent.holds_others_back(end) && urgent.is_any_running());
        urgent.start("b", end);
        assert!(urgent.holds_others_back(end));
        urgent.end("b", end);
        urgent.end("a", end);

        urgent.start("a", end + MAX_BUDGET);
        assert!(urgent.holds_others_back(end + MAX_BUDGET));
        assert!(!urgent.holds_others_back(end + MAX_BUDGET + MAX_BUDGET / REFILL), "only a fifth is available again");
        urgent.end("a", end + MAX_BUDGET * 2);
        urgent.start("b", end + MAX_BUDGET * 10);
        assert_eq!(urgent.namespaces.len(), 1, "a full budget is not kept");
    }
}
