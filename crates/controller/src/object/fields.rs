//! Reads JSON objects field by field.
//!
//! A value is skipped without recursion until its field is read, so neither its depth nor its type can fail anything but
//! the field itself.

use std::collections::BTreeMap;

use fivespot_validation::validate::UnreadableField;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::runtime::request::truncate;

/// What may be kept of one object, and which of its fields could not be read.
pub(crate) struct Reading {
    /// Bytes of JSON that may still be kept.
    remaining: usize,
    limit: usize,
    pub(crate) unreadable: Vec<UnreadableField>,
}

impl Reading {
    pub(crate) fn with_limit(limit: usize) -> Self {
        Reading { remaining: limit, limit, unreadable: Vec::new() }
    }

    /// For objects of which the caller keeps bounded parts.
    pub(crate) fn unlimited() -> Self {
        Self::with_limit(usize::MAX)
    }
}

/// The fields of one JSON object that have not been read yet.
pub(crate) struct Fields<'a, 'r> {
    path: String,
    unread: BTreeMap<String, &'a RawValue>,
    reading: &'r mut Reading,
}

/// The fields of a JSON object, unparsed.
pub(crate) fn split(json: &str) -> Result<BTreeMap<String, &RawValue>, serde_json::Error> {
    serde_json::from_str(json)
}

impl<'a, 'r> Fields<'a, 'r> {
    /// The fields of `json`, which is at `path`. Without JSON there are none.
    pub(crate) fn new(path: &str, json: Option<&'a RawValue>, reading: &'r mut Reading) -> Self {
        let path = path.to_owned();
        let unread = match json.filter(|json| !is_null(json)).map(|json| split(json.get())) {
            Some(Ok(fields)) => fields,
            Some(Err(error)) => {
                let cause = truncate(&error.to_string());
                reading.unreadable.push(UnreadableField { field: path.clone(), cause });
                BTreeMap::new()
            }
            None => BTreeMap::new(),
        };
        Fields { path, unread, reading }
    }

    /// The fields of an object in a field.
    pub(crate) fn nested(&mut self, name: &str) -> Fields<'a, '_> {
        let json = self.unread.remove(name);
        Fields::new(&format!("{}.{name}", self.path), json, self.reading)
    }

    /// A field, unparsed. `null` counts as absent.
    pub(crate) fn take(&mut self, name: &str) -> Option<&'a RawValue> {
        self.unread.remove(name).filter(|json| !is_null(json))
    }

    /// Reads a field. One that cannot be read counts as absent.
    pub(crate) fn read<T: DeserializeOwned>(&mut self, name: &str) -> Option<T> {
        let json = self.take(name)?.get();
        let Some(remaining) = self.reading.remaining.checked_sub(json.len()) else {
            let limit = self.reading.limit / 1024;
            self.unreadable(name, format!("with its {} bytes, the fields read so far exceed {limit} KiB", json.len()));
            return None;
        };
        match serde_json::from_str(json) {
            Ok(value) => {
                self.reading.remaining = remaining;
                Some(value)
            }
            Err(error) => {
                self.unreadable(name, error.to_string());
                None
            }
        }
    }

    pub(crate) fn unreadable(&mut self, name: &str, cause: impl AsRef<str>) {
        let field = format!("{}.{name}", self.path);
        self.reading.unreadable.push(UnreadableField { field, cause: truncate(cause.as_ref()) });
    }
}

fn is_null(json: &RawValue) -> bool {
    json.get() == "null"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T>(json: &str, read: impl FnOnce(&mut Fields<'_, '_>) -> T) -> (T, Vec<String>) {
        let raw: &RawValue = serde_json::from_str(json).unwrap();
        let mut reading = Reading::with_limit(1024);
        let value = read(&mut Fields::new("spec", Some(raw), &mut reading));
        (value, reading.unreadable.into_iter().map(|it| it.field).collect())
    }

    #[test]
    fn field_that_cannot_be_read_affects_no_other() {
        let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
        let json = format!(r#"{{"a":{deep},"b":"text","c":7,"d":null,"e":{{"f":1,"g":{deep}}}}}"#);
        let (values, unreadable) = read(&json, |fields| {
            let deep: Option<serde_json::Value> = fields.read("a");
            let numbers = ["b", "c", "d"].map(|name| fields.read::<i64>(name));
            let mut nested = fields.nested("e");
            (deep, numbers, nested.read::<i64>("f"), nested.read::<Vec<i64>>("g"))
        });
        assert_eq!(values, (None, [None, Some(7), None], Some(1), None));
        assert_eq!(unreadable, ["spec.a", "spec.b", "spec.e.g"]);
    }

    #[test]
    fn fields_are_bounded_together() {
        let json = format!(r#"{{"a":"{0}","b":"{0}","c":"{0}","d":1}}"#, "x".repeat(500));
        let (values, unreadable) = read(&json, |fields| {
            ["a", "b", "c"]
                .map(|name| fields.read::<String>(name).is_some())
                .into_iter()
                .chain([fields.read::<i64>("d").is_some()])
                .collect::<Vec<_>>()
        });
        assert_eq!(values, [true, true, false, true]);
        assert_eq!(unreadable, ["spec.c"]);
    }

    #[test]
    fn value_that_is_no_object_has_no_fields() {
        assert_eq!(read("[]", |fields| fields.read::<i64>("a")), (None, vec!["spec".to_owned()]));
    }
}
