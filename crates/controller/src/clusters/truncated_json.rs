//! JSON of a response that was cut off because it is too large.

/// Completes JSON that is cut off: drops the value that is incomplete and closes what is open. API servers send what
/// identifies an object before what makes it large.
pub(crate) fn complete(text: &str) -> String {
    // What is before a comma is complete.
    let (_, last_comma) = scan(text);
    let text = &text[..last_comma];
    let closing: String = scan(text).0.iter().rev().map(|byte| char::from(*byte)).collect();
    format!("{text}{closing}")
}

/// What closes the open objects and lists of incomplete JSON, outermost first, and where its last comma is.
fn scan(text: &str) -> (Vec<u8>, usize) {
    let (mut closing, mut last_comma) = (Vec::new(), 0);
    let (mut in_string, mut is_escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' => closing.push(b'}'),
            b'[' => closing.push(b']'),
            b'}' | b']' => {
                closing.pop();
            }
            b',' => last_comma = at,
            _ => {}
        }
    }
    (closing, last_comma)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn json_that_is_cut_off_anywhere_is_completed() {
        let whole = json!({ "a": "x,{[\"\\", "b": [1, { "c": [], "d": {} }, [2, 3]], "e": { "f": "g" }, "h": null });
        let text = whole.to_string();
        for len in text.find(",\"b\"").unwrap() + 1..text.len() {
            let completed: Value = serde_json::from_str(&complete(&text[..len])).unwrap_or_else(|error| {
                panic!("{}: {error}", complete(&text[..len]));
            });
            assert!(completed.is_object());
        }
        assert_eq!(complete(""), "");
    }
}
