//! Texts about an emergency reclaim that the plan and the status share.

/// Shown if the request gives no reason.
pub(crate) const NO_REASON: &str = "no reason given";

/// Once the machine is removed and the schedule is disabled.
pub(crate) fn disabled(reason: Option<&str>) -> String {
    let reason = reason.unwrap_or(NO_REASON);
    format!("Schedule auto-disabled by emergency reclaim ({reason}). Re-enable with kubectl patch when ready.")
}
