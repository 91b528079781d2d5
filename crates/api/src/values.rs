//! Defaults of the spec, each named where serde and the schema both need it.

pub(crate) fn utc() -> String {
    "UTC".to_owned()
}

pub(crate) fn yes() -> bool {
    true
}

pub(crate) fn priority() -> u8 {
    50
}

pub(crate) fn five_minutes() -> String {
    "5m".to_owned()
}
