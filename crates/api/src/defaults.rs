//! Default values of the spec, used by both serde and the schema.

pub(crate) fn timezone() -> String {
    "UTC".to_owned()
}

pub(crate) fn enabled() -> bool {
    true
}

pub(crate) fn priority() -> u8 {
    50
}

pub(crate) fn timeout() -> String {
    "5m".to_owned()
}
