//! The smallest JSON merge patch (RFC 7386) from one value to another.

use serde_json::{Map, Value};

/// The merge patch that turns `before` into `after`; `None` if they are equal.
///
/// Lists are replaced as a whole. A null in `after` equals an absent field.
pub fn merge_patch(before: &Value, after: &Value) -> Option<Value> {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let removed = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), Value::Null));
            let changed = after.iter().filter_map(|(key, value)| {
                let old = before.get(key).unwrap_or(&Value::Null);
                merge_patch(old, value).map(|patch| (key.clone(), patch))
            });
            let patch: Map<String, Value> = removed.chain(changed).collect();
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        (before, after) if before == after => None,
        (_, after) => Some(after.clone()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// The algorithm of RFC 7386, section 2.
    fn apply(target: Value, patch: &Value) -> Value {
        let Value::Object(patch) = patch else { return patch.clone() };
        let mut target = match target {
            Value::Object(map) => map,
            _ => Map::new(),
        };
        for (key, value) in patch {
            if value.is_null() {
                target.remove(key);
            } else {
                let old = target.remove(key).unwrap_or(Value::Null);
                target.insert(key.clone(), apply(old, value));
            }
        }
        Value::Object(target)
    }

    fn object() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            (0..3_i32).prop_map(Value::from),
            prop::collection::vec(0..3_i32, 0..2).prop_map(Value::from),
        ];
        let value = leaf.prop_recursive(3, 12, 3, |inner| {
            prop::collection::btree_map("[abc]", inner, 0..3).prop_map(|it| it.into_iter().collect::<Value>())
        });
        prop::collection::btree_map("[abc]", value, 0..4).prop_map(|it| it.into_iter().collect::<Value>())
    }

    proptest! {
        #[test]
        fn applying_the_patch_gives_the_target(before in object(), after in object()) {
            match merge_patch(&before, &after) {
                None => prop_assert_eq!(before, after),
                Some(patch) => prop_assert_eq!(apply(before, &patch), after),
            }
        }
    }

    #[test]
    fn patch_contains_only_changes() {
        let (before, after) = (json!({"a": 1, "b": {"c": 2, "d": 3}, "e": 4}), json!({"a": 1, "b": {"c": 5}, "f": 6}));
        assert_eq!(merge_patch(&before, &after), Some(json!({"b": {"c": 5, "d": null}, "e": null, "f": 6})));
    }
}
