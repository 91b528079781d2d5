//! The specs of the inline objects: what a decision needs to know about them, so that it need not keep them.

use std::borrow::Cow;

use fivespot_api::ScheduledMachineSpec;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// Limit of a spec, in bytes of compact JSON.
pub const MAX_SIZE: usize = 64 * 1024;
/// Limit of the nesting of a spec. The spec itself is the first level.
pub const MAX_DEPTH: usize = 32;
/// The API server writes some characters as `\u003c`, so its text can be this many times as long as the same JSON here.
const MAX_ESCAPED_LEN: usize = 6;
/// Limit of the entries of each list and object in a spec. The time in which the API server evaluates the admission policy
/// grows with the square of this number.
pub const MAX_ENTRIES: usize = 1000;

/// A hash of a spec.
pub type Digest = [u8; DIGEST_LEN];
const DIGEST_LEN: usize = 16;

/// What is kept of the spec of an inline object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InlineSpecSummary {
    /// Bytes of compact JSON.
    pub size: usize,
    /// The size as the admission policy measures it: a string in characters, without escapes, and a number as one. So it is
    /// never more than `size`, and the same for most specs.
    pub size_in_policy: usize,
    pub depth: usize,
    /// Entries of the longest list or object, down to the deepest level that is allowed.
    pub entries: usize,
    pub sets_provider_id: bool,
    /// Of the JSON text with sorted keys.
    pub digest: Digest,
}

impl InlineSpecSummary {
    pub fn of(spec: &Map<String, Value>) -> Self {
        Self::of_text(&serde_json::to_string(spec).expect("a JSON object has strings as keys"))
    }

    /// Summarizes JSON of any size and depth, as the API server writes it: compact, with sorted keys. Returns the spec too,
    /// unless it exceeds a limit. It is never parsed: `{"":0}` is a hundred times as large as a map.
    pub fn of_json(json: &RawValue) -> Result<(Self, Option<Box<RawValue>>), serde_json::Error> {
        if !json.get().starts_with('{') {
            return Err(serde::de::Error::custom("it is not an object"));
        }
        if json.get().len() > MAX_SIZE * MAX_ESCAPED_LEN {
            return Ok((Self::of_text(json.get()), None));
        }
        let text = without_html_escapes(json.get());
        let summary = Self::of_text(&text);
        let spec = if summary.is_within_limits() { Some(RawValue::from_string(text.into_owned())?) } else { None };
        Ok((summary, spec))
    }

    fn of_text(text: &str) -> Self {
        let Measured { depth, entries, size_in_policy } = measure(text);
        let fields: Result<KnownFields, _> = serde_json::from_str(text);
        InlineSpecSummary {
            size: text.len(),
            size_in_policy,
            depth,
            entries,
            sets_provider_id: fields.is_ok_and(|fields| fields.provider_id),
            digest: digest(text),
        }
    }

    fn is_within_limits(&self) -> bool {
        self.size <= MAX_SIZE && self.depth <= MAX_DEPTH && self.entries <= MAX_ENTRIES
    }
}

#[derive(Deserialize)]
struct KnownFields {
    #[serde(rename = "providerID", default, deserialize_with = "is_present")]
    provider_id: bool,
}

/// `null` counts, too.
fn is_present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| true)
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

/// JSON in which `<`, `>` and `&` are not escaped. The API server escapes them, and other programs do not.
fn without_html_escapes(json: &str) -> Cow<'_, str> {
    if !json.contains("\\u00") {
        return Cow::Borrowed(json);
    }
    let mut text = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        text.push_str(before);
        let plain = [("\\u003c", '<'), ("\\u003e", '>'), ("\\u0026", '&')];
        let found = plain.into_iter().find_map(|(escaped, plain)| Some((escape.strip_prefix(escaped)?, plain)));
        rest = if let Some((rest, plain)) = found {
            text.push(plain);
            rest
        } else {
            // The character after a backslash is ASCII. It may be another backslash, which begins no escape.
            let (escape, rest) = escape.split_at_checked(2).unwrap_or((escape, ""));
            text.push_str(escape);
            rest
        };
    }
    text.push_str(rest);
    Cow::Owned(text)
}

struct Measured {
    depth: usize,
    entries: usize,
    size_in_policy: usize,
}

/// Measures compact JSON without recursion: a parser's recursion limit is what a deep text exceeds.
fn measure(json: &str) -> Measured {
    let (mut depth, mut deepest, mut size, mut before) = (0_usize, 0, 0, b' ');
    // Commas in the list or object of each level.
    let (mut commas, mut most) = ([0_usize; MAX_DEPTH + 1], 0);
    let mut bytes = json.bytes();
    while let Some(byte) = bytes.next() {
        size += match byte {
            b'"' => 2 + characters_of_string(&mut bytes),
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
                if let Some(commas) = commas.get_mut(depth) {
                    *commas = 0;
                }
                1
            }
            b'}' | b']' => {
                let is_empty = matches!(before, b'{' | b'[');
                if let Some(commas) = commas.get(depth).filter(|_| !is_empty) {
                    most = most.max(commas + 1);
                }
                depth = depth.saturating_sub(1);
                usize::from(!is_empty)
            }
            b',' => {
                if let Some(commas) = commas.get_mut(depth) {
                    *commas += 1;
                }
                1
            }
            b':' => 1,
            // The first character of a number or a name counts.
            _ => usize::from(matches!(before, b',' | b':' | b'[')),
        };
        before = byte;
    }
    Measured { depth: deepest, entries: most, size_in_policy: size }
}

/// The characters of a string up to its closing quote; an escape is one.
fn characters_of_string(bytes: &mut std::str::Bytes<'_>) -> usize {
    let mut characters = 0;
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => break,
            b'\\' => {
                if bytes.next() == Some(b'u') {
                    bytes.nth(3);
                }
                characters += 1;
            }
            // Not the first byte of a character in UTF-8.
            0x80..=0xbf => {}
            _ => characters += 1,
        }
    }
    characters
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn nested(levels: usize) -> String {
        format!("{}{{}}{}", r#"{"a":"#.repeat(levels - 1), "}".repeat(levels - 1))
    }

    fn of_json(text: &str) -> Result<(InlineSpecSummary, Option<Box<RawValue>>), serde_json::Error> {
        InlineSpecSummary::of_json(serde_json::from_str(text).unwrap())
    }

    #[test]
    fn depth_ignores_brackets_in_strings() {
        for (text, expected) in
            [("{}", 1), (r#"{"a":[]}"#, 2), (r#"{"a":"[[[","b":[1]}"#, 2), (r#"{"\"{":"\\","b":[{}]}"#, 3), ("1", 0)]
        {
            assert_eq!(measure(text).depth, expected, "{text}");
        }
    }

    #[test]
    fn entries_are_those_of_the_longest_list_or_object() {
        for (text, expected) in [
            ("{}", 0),
            (r#"{"a":[]}"#, 1),
            (r#"{"a":",,,","b":1}"#, 2),
            (r#"{"a":[1,[2,3],{"b":4,"c":5,"d":6,"e":7},8],"f":9}"#, 4),
        ] {
            assert_eq!(measure(text).entries, expected, "{text}");
        }
    }

    #[test]
    fn spec_beyond_a_limit_is_summarized_but_not_returned() {
        let returned = |text: &str| of_json(text).unwrap().1.is_some();
        assert!(returned(&nested(MAX_DEPTH)) && !returned(&nested(MAX_DEPTH + 1)));
        let (summary, spec) = of_json(&nested(5000)).unwrap();
        assert_eq!((summary.depth, spec.is_none()), (5000, true));
        let sized = |size: usize| json!({ "a": "x".repeat(size - r#"{"a":""}"#.len()) }).to_string();
        assert!(returned(&sized(MAX_SIZE)) && !returned(&sized(MAX_SIZE + 1)));
        assert!(!returned(&sized(MAX_SIZE * 20)));
        let long = |entries: usize| json!({ "a": vec![0; entries] }).to_string();
        assert!(returned(&long(MAX_ENTRIES)) && !returned(&long(MAX_ENTRIES + 1)));
    }

    /// The API server escapes `<`, `>` and `&`; a file does not.
    #[test]
    fn summary_does_not_depend_on_escapes() {
        let (summary, spec) = of_json(r#"{"a":1,"b":"\u003cx\u003e\u0026\u00e9 \\u003c \""}"#).unwrap();
        let plain = json!({ "a": 1, "b": "<x>&é \\u003c \"" });
        let spec = spec.unwrap();
        assert_eq!(serde_json::from_str::<Value>(spec.get()).unwrap(), plain);
        assert_eq!(spec.get(), r#"{"a":1,"b":"<x>&\u00e9 \\u003c \""}"#);
        let (other, _) = of_json(r#"{"a":1,"b":"<x>&\u00e9 \\u003c \""}"#).unwrap();
        assert_eq!(summary, other);
        assert_eq!(of_json(r#"{"a":"<"}"#).unwrap().0, InlineSpecSummary::of(json!({ "a": "<" }).as_object().unwrap()));
        assert!(of_json("[]").is_err());
    }

    #[test]
    fn provider_id_is_found_at_the_top_only() {
        let sets = |text: &str| of_json(text).unwrap().0.sets_provider_id;
        assert!(sets(r#"{"a":1,"providerID":"x"}"#) && sets(r#"{"providerID":null}"#));
        assert!(!sets(r#"{"a":{"providerID":"x"}}"#) && !sets("{}"));
        assert!(sets(&format!(r#"{{"a":{},"providerID":""}}"#, nested(5000))));
    }

    #[test]
    fn policy_measures_plain_specs_exactly_and_no_spec_as_larger() {
        let sizes = |spec: Value| {
            let summary = InlineSpecSummary::of(spec.as_object().unwrap());
            (summary.size, summary.size_in_policy)
        };
        assert_eq!(sizes(json!({ "a": "x", "b": [1, true, { "c": "" }] })), (31, 28));
        assert_eq!(sizes(json!({ "a": ["x", "y"], "b": { "c": "z" } })), (29, 29));
        assert_eq!(sizes(json!({ "é": "\n\"", "b": -1.5, "c": null, "d": {}, "e": [] })), (45, 34));
    }

    fn json() -> impl Strategy<Value = Value> {
        let scalar = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[ -~é\\n]{0,8}".prop_map(Value::from),
        ];
        scalar.prop_recursive(6, 64, 8, |inner| {
            let items = prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from);
            let fields = prop::collection::btree_map("[a-zé\"{]{0,4}", inner, 0..8);
            prop_oneof![items, fields.prop_map(|fields| Value::Object(fields.into_iter().collect()))]
        })
    }

    /// What the expression of the policy computes.
    fn size_in_policy(value: &Value) -> usize {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 1,
            Value::String(text) => text.chars().count() + 2,
            Value::Array(items) => 1 + items.iter().map(|item| size_in_policy(item) + 1).sum::<usize>(),
            Value::Object(fields) => {
                let entry = |(key, value): (&String, &Value)| key.chars().count() + 3 + size_in_policy(value) + 1;
                1 + fields.iter().map(entry).sum::<usize>()
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_is_measured(text in ".*") {
            prop_assert!(measure(&text).depth <= text.len());
        }

        #[test]
        fn text_is_measured_as_the_policy_measures_values(value in json()) {
            let spec = json!({ "a": value });
            prop_assert_eq!(measure(&spec.to_string()).size_in_policy, size_in_policy(&spec));
        }
    }
}
