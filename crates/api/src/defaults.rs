//! Default values of the spec, used by serde, the schema and the controller's decoder.

/// Of `schedule.timezone`.
pub fn timezone() -> String {
    "UTC".to_owned()
}

/// Of `schedule.enabled`.
pub fn enabled() -> bool {
    true
}

/// Of `priority`.
pub fn priority() -> u8 {
    50
}

/// Of `gracefulShutdownTimeout` and `nodeDrainTimeout`.
pub fn timeout() -> String {
    "5m".to_owned()
}
