//! The specs of the inline objects: what a decision needs to know about them, so that it need not keep them.

use fivespot_api::ScheduledMachineSpec;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// Limit of a spec, in bytes of compact JSON.
pub const MAX_SIZE: usize = 64 * 1024;
/// Limit of the nesting of a spec. The spec itself is the first level.
pub const MAX_DEPTH: usize = 32;
/// The API server writes some characters as `\u003c`, so its text can be this many times as long as the same JSON here.
const MAX_ESCAPED_LEN: usize = 6;

/// A hash of a spec.
pub type Digest = [u8; DIGEST_LEN];
const DIGEST_LEN: usize = 16;

/// What is kept of the spec of an inline object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InlineSpecSummary {
    /// Bytes of compact JSON.
    pub size: usize,
    pub depth: usize,
    pub sets_provider_id: bool,
    /// Of the JSON text with sorted keys.
    pub digest: Digest,
}

impl InlineSpecSummary {
    pub fn of(spec: &Map<String, Value>) -> Self {
        let text = serde_json::to_string(spec).expect("a JSON object has strings as keys");
        InlineSpecSummary {
            size: text.len(),
            depth: depth(&text),
            sets_provider_id: spec.contains_key("providerID"),
            digest: digest(&text),
        }
    }

    /// Summarizes JSON of any size and depth. Returns the spec too, unless it exceeds a limit.
    pub fn of_json(text: &str) -> Result<(Self, Option<Map<String, Value>>), serde_json::Error> {
        let depth = depth(text);
        if depth > MAX_DEPTH || text.len() > MAX_SIZE * MAX_ESCAPED_LEN {
            let summary = InlineSpecSummary { size: text.len(), depth, sets_provider_id: false, digest: digest(text) };
            return Ok((summary, None));
        }
        let spec = serde_json::from_str(text)?;
        let summary = Self::of(&spec);
        Ok((summary, Some(spec).filter(|_| summary.is_within_limits())))
    }

    fn is_within_limits(&self) -> bool {
        self.size <= MAX_SIZE && self.depth <= MAX_DEPTH
    }
}

/// The summaries of both inline specs of a ScheduledMachine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InlineSpecSummaries {
    pub bootstrap: InlineSpecSummary,
    pub infrastructure: InlineSpecSummary,
}

impl InlineSpecSummaries {
    pub fn of(spec: &ScheduledMachineSpec) -> Self {
        InlineSpecSummaries {
            bootstrap: InlineSpecSummary::of(&spec.bootstrap_spec.spec),
            infrastructure: InlineSpecSummary::of(&spec.infrastructure_spec.spec),
        }
    }
}

fn digest(text: &str) -> Digest {
    let mut digest = Digest::default();
    digest.copy_from_slice(&Sha256::digest(text)[..DIGEST_LEN]);
    digest
}

/// How deep JSON is nested, without recursion: a parser's recursion limit is what a deep text exceeds.
fn depth(json: &str) -> usize {
    let (mut depth, mut deepest, mut in_string) = (0_usize, 0, false);
    let mut bytes = json.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' if in_string => {
                bytes.next();
            }
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn nested(levels: usize) -> String {
        format!("{}{{}}{}", r#"{"a":"#.repeat(levels - 1), "}".repeat(levels - 1))
    }

    #[test]
    fn depth_ignores_brackets_in_strings() {
        for (text, expected) in
            [("{}", 1), (r#"{"a":[]}"#, 2), (r#"{"a":"[[[","b":[1]}"#, 2), (r#"{"\"{":"\\","b":[{}]}"#, 3), ("1", 0)]
        {
            assert_eq!(depth(text), expected, "{text}");
        }
    }

    #[test]
    fn spec_beyond_a_limit_is_summarized_but_not_returned() {
        let returned = |text: &str| InlineSpecSummary::of_json(text).unwrap().1.is_some();
        assert!(returned(&nested(MAX_DEPTH)) && !returned(&nested(MAX_DEPTH + 1)));
        let (summary, spec) = InlineSpecSummary::of_json(&nested(5000)).unwrap();
        assert_eq!((summary.depth, spec), (5000, None));
        let sized = |size: usize| json!({ "a": "x".repeat(size - r#"{"a":""}"#.len()) }).to_string();
        assert!(returned(&sized(MAX_SIZE)) && !returned(&sized(MAX_SIZE + 1)));
        assert!(!returned(&sized(MAX_SIZE * 20)));
    }

    /// The API server escapes `<`, `>` and `&`; a file does not.
    #[test]
    fn summary_does_not_depend_on_escapes_and_order() {
        let (summary, spec) = InlineSpecSummary::of_json(r#"{"b":"\u003cx\u003e","a":1}"#).unwrap();
        assert_eq!(summary, InlineSpecSummary::of(json!({ "a": 1, "b": "<x>" }).as_object().unwrap()));
        assert_eq!(spec.map(Value::Object), Some(json!({ "a": 1, "b": "<x>" })));
        assert!(InlineSpecSummary::of_json("[]").is_err());
    }

    proptest! {
        #[test]
        fn depth_of_any_text_is_computed(text in ".*") {
            prop_assert!(depth(&text) <= text.len());
        }
    }
}
