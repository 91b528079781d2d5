//! Parsers never panic, and the position of an error is always inside the text.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod fixtures;
mod model;

use fivespot_schedule::{Reason, Schedule, parse_duration};
use model::RawSchedule;
use proptest::prelude::*;

/// A schedule with the same text in every field.
fn in_every_field(text: &str) -> RawSchedule {
    let texts = vec![text.to_owned()];
    let edge = (text.to_owned(), text.to_owned(), true);
    RawSchedule {
        days: texts.clone(),
        hours: texts,
        duration: Some(text.into()),
        zone: text.into(),
        overrides: vec![edge],
        ..RawSchedule::default()
    }
}

fn valid() -> RawSchedule {
    RawSchedule { zone: "Europe/Paris".into(), ..fixtures::days_and_hours("mon-fri", "9-17") }
}

/// Valid schedules with the text in one field.
fn in_each_field(text: &str) -> [RawSchedule; 7] {
    let list = vec![text.to_owned()];
    let cron =
        |cron: &str, duration: &str| RawSchedule { zone: "Europe/Paris".into(), ..fixtures::cron(cron, duration) };
    [
        RawSchedule { days: list.clone(), ..valid() },
        RawSchedule { hours: list, ..valid() },
        cron(text, ""),
        RawSchedule { duration: Some(text.to_owned()), ..cron("0 9 * * *", "") },
        RawSchedule { zone: text.to_owned(), ..valid() },
        RawSchedule { overrides: vec![(text.to_owned(), "9999-12-31".to_owned(), true)], ..valid() },
        RawSchedule { overrides: vec![("0000-01-01".to_owned(), text.to_owned(), false)], ..valid() },
    ]
}

/// Parses the schedule, and asserts what must hold for every result.
fn check_parse(raw: &RawSchedule) -> Option<Schedule> {
    match fixtures::try_parse(raw) {
        Ok(schedule) => {
            assert_eq!(fixtures::parse(raw), schedule, "parsing is deterministic");
            Some(schedule)
        }
        Err(errors) => {
            assert!(errors.iter().count() > 0);
            for error in &errors {
                assert!(error.position <= error.text.chars().count(), "{error:?} is outside of its text");
                assert!(error.to_string().starts_with(&format!("{}: ", error.field)));
            }
            None
        }
    }
}

/// A valid text with a few characters removed, replaced, swapped or inserted.
fn nearly_valid() -> impl Strategy<Value = String> {
    let date = (1990..2050, 0..14, 0..33).prop_map(|(year, month, day)| format!("{year}-{month:02}-{day:02}"));
    let time = (0..26, 0..61, 0..61).prop_map(|(hour, minute, second)| format!("T{hour:02}:{minute:02}:{second:02}"));
    let offset =
        prop::sample::select(vec!["", "Z", "+01:00", "-11:30", "+24:00", "z", ".5Z", ".123456789012Z", "+0100"]);
    let valid = prop_oneof![
        fixtures::day_entry(),
        fixtures::hour_entry(),
        fixtures::expression(),
        fixtures::expression().prop_map(|text| text.replace(" * ", " 1-3 ")),
        fixtures::duration(),
        date.clone(),
        (date, time, offset).prop_map(|(date, time, offset)| format!("{date}{time}{offset}")),
        prop::sample::select(vec!["Europe/Paris", "UTC", "America/Argentina/Ushuaia", "Etc/GMT+12"])
            .prop_map(str::to_owned),
        prop::sample::select(vec!["@daily", "@every 5m", "TZ=UTC 0 9 * * *", "0 0 9 * * *", "0 9 * *"])
            .prop_map(str::to_owned),
    ];
    let mutation = (
        0..4,
        any::<prop::sample::Index>(),
        prop_oneof![
            6 => prop::sample::select("0123456789-,*/ :TZ+.@#?LWmonfriséX\t\n".chars().collect::<Vec<_>>()),
            1 => any::<char>(),
        ],
    );
    (valid, prop::collection::vec(mutation, 0..4)).prop_map(|(valid, mutations)| {
        let mut text: Vec<char> = valid.chars().collect();
        for (kind, at, character) in mutations {
            let at = at.index(text.len() + 1);
            match kind {
                0 if at < text.len() => drop(text.remove(at)),
                1 if at < text.len() => text[at] = character,
                2 if at + 1 < text.len() => text.swap(at, at + 1),
                _ => text.insert(at, character),
            }
        }
        text.into_iter().collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text(text in any::<String>()) {
        check_parse(&in_every_field(&text));
        for raw in in_each_field(&text) {
            check_parse(&raw);
        }
    }

    #[test]
    fn nearly_valid_text(text in nearly_valid()) {
        check_parse(&in_every_field(&text));
        for raw in in_each_field(&text) {
            if let Some(schedule) = check_parse(&raw) {
                let _ = schedule.next_change("2026-06-10T12:00:00Z".parse().unwrap());
            }
        }
    }

    #[test]
    fn durations_match_documented_format(text in "[0-9]{0,6}[smhd0 ]{0,2}") {
        let (number, unit) = text.split_at(text.len().saturating_sub(1));
        let form = !number.is_empty() && !number.starts_with('0') && number.bytes().all(|b| b.is_ascii_digit());
        let limit = match unit { "s" => 86_400, "m" => 1_440, "h" => 24, _ => 0 };
        let expected = form && number.parse::<u32>().unwrap() <= limit;
        prop_assert_eq!(parse_duration(&text).is_ok(), expected);
    }

    #[test]
    fn cron_ignores_spacing_and_case(text in fixtures::expression(), length in fixtures::duration()) {
        let spaced = text.replace(' ', " \t ");
        let parse = |cron: &str| fixtures::parse(&RawSchedule { zone: "UTC".into(), ..fixtures::cron(cron, &length) });
        prop_assert_eq!(parse(&text), parse(&format!(" {spaced} ")));
        prop_assert_eq!(parse(&text), parse(&text.to_uppercase()));
    }
}

#[test]
fn long_texts_and_lists_are_rejected() {
    for part in ["9,", "*", "1-", "mon,", "0 ", "9", "é"] {
        let text = part.repeat(200_000);
        check_parse(&in_every_field(&text));
        for raw in in_each_field(&text) {
            check_parse(&raw);
        }
    }
    let many = RawSchedule { days: vec!["mon".into(); 33], hours: vec!["x".into(); 33], ..valid() };
    let errors = fixtures::try_parse(&many).unwrap_err();
    assert_eq!(errors.iter().filter(|error| matches!(error.reason, Reason::TooManyEntries { .. })).count(), 2);
    let overrides = vec![("2026-01-01".into(), "2026-01-02".into(), true); 257];
    let errors = fixtures::try_parse(&RawSchedule { overrides, ..valid() }).unwrap_err();
    assert_eq!(errors.to_string(), "overrides: has 257 entries, at most 256 are allowed");
}
