//! Suggestions for misspelt names.

/// Returns the candidate closest to `word`, unless it differs in more than a third of the characters. Ignores case.
pub(crate) fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = word.chars().count();
    let limit = length.max(3) / 3;
    candidates
        .into_iter()
        // The distance is at least the difference in length, which rules out long words before comparing them.
        .filter(|candidate| candidate.chars().count().abs_diff(length) <= limit)
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Formats the end of an error message: `; did you mean ...?`, or nothing.
pub(crate) fn did_you_mean(suggestion: Option<&str>) -> String {
    suggestion.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

fn distance(word: &str, candidate: &str) -> usize {
    strsim::osa_distance(&word.to_ascii_lowercase(), &candidate.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: [&str; 6] = ["cron", "daysOfWeek", "duration", "enabled", "hoursOfDay", "timezone"];

    #[test]
    fn similar_names_are_suggested() {
        for (word, expected) in [
            ("dayOfWeek", "daysOfWeek"),
            ("daysofweek", "daysOfWeek"),
            ("DAYSOFWEEK", "daysOfWeek"),
            ("corn", "cron"),
            ("enable", "enabled"),
            ("timeZone", "timezone"),
        ] {
            assert_eq!(closest(word, FIELDS), Some(expected), "{word}");
        }
    }

    #[test]
    fn dissimilar_names_are_not_suggested() {
        for word in ["", "x", "tz", "weekdays", "schedule", &"d".repeat(100_000)] {
            assert_eq!(closest(word, FIELDS), None, "{word}");
        }
    }

    #[test]
    fn closest_name_wins() {
        assert_eq!(closest("labelss", ["label", "labels"]), Some("labels"));
    }
}
