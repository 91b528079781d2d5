//! `reclaim.toml`: what the owner of the machine asked to look for.

use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use crate::matcher::Patterns;

/// As many as a ScheduledMachine may name, and as long.
const MAX_PATTERNS: usize = 100;
const MAX_CHARACTERS: usize = 256;

const DEFAULT_POLL_INTERVAL_MS: i64 = 250;
/// Faster than this is a busy loop, slower is no emergency any more.
const POLL_INTERVAL_MS: std::ops::RangeInclusive<i64> = 10..=60_000;

/// What to look for, and how often where the kernel does not tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) patterns: Patterns,
    pub(crate) poll_interval: Duration,
}

/// What is wrong with the file, and where in it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub(crate) struct ConfigError {
    line: usize,
    column: usize,
    what: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    match_commands: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default)]
    match_argv_substrings: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default)]
    poll_interval_ms: Option<Spanned<i64>>,
}

impl Config {
    /// Of an agent that is inert.
    pub(crate) fn nothing() -> Self {
        let poll_interval = Duration::from_millis(DEFAULT_POLL_INTERVAL_MS.unsigned_abs());
        Config { patterns: Patterns::default(), poll_interval }
    }

    /// Reads the text of a `reclaim.toml`. Everything may be left out; without patterns the agent is inert.
    pub(crate) fn parse(text: &str) -> Result<Self, ConfigError> {
        let file: File = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |it| it.start);
            ConfigError::at(text, at, format!("{}, in: {}", error.message(), line_of(text, at)))
        })?;
        let commands = patterns(text, "match_commands", file.match_commands)?;
        let argv_substrings = patterns(text, "match_argv_substrings", file.match_argv_substrings)?;
        let poll_interval = poll_interval(text, file.poll_interval_ms)?;
        Ok(Config { patterns: Patterns { commands, argv_substrings }, poll_interval })
    }
}

fn patterns(text: &str, field: &str, list: Option<Spanned<Vec<Spanned<String>>>>) -> Result<Vec<String>, ConfigError> {
    let Some(list) = list else { return Ok(Vec::new()) };
    let at = list.span().start;
    let list = list.into_inner();
    if list.len() > MAX_PATTERNS {
        let what = format!("{field}: must have at most {MAX_PATTERNS} entries, has {}", list.len());
        return Err(ConfigError::at(text, at, what));
    }
    list.into_iter().enumerate().map(|(index, pattern)| check(text, &format!("{field}[{index}]"), pattern)).collect()
}

/// A pattern that is blank would match nearly everything, and one with a NUL nothing.
fn check(text: &str, field: &str, pattern: Spanned<String>) -> Result<String, ConfigError> {
    let at = pattern.span().start;
    let pattern = pattern.into_inner();
    let length = pattern.chars().count();
    let wrong = if pattern.chars().all(|it| it.is_ascii_whitespace()) {
        format!("{pattern:?} must not be blank")
    } else if pattern.contains('\0') {
        format!("{pattern:?} must not contain a NUL, which no name and no argument has")
    } else if length > MAX_CHARACTERS {
        format!("must have at most {MAX_CHARACTERS} characters, has {length}")
    } else {
        return Ok(pattern);
    };
    Err(ConfigError::at(text, at, format!("{field}: {wrong}")))
}

fn poll_interval(text: &str, interval: Option<Spanned<i64>>) -> Result<Duration, ConfigError> {
    let at = interval.as_ref().map_or(0, |it| it.span().start);
    let interval = interval.map_or(DEFAULT_POLL_INTERVAL_MS, Spanned::into_inner);
    let (least, most) = (POLL_INTERVAL_MS.start(), POLL_INTERVAL_MS.end());
    u64::try_from(interval).ok().filter(|_| POLL_INTERVAL_MS.contains(&interval)).map(Duration::from_millis).ok_or_else(
        || ConfigError::at(text, at, format!("poll_interval_ms: {interval} must be between {least} and {most}")),
    )
}

/// The line of this place: the parser's own message does not name the field.
fn line_of(text: &str, at: usize) -> &str {
    let start = text[..at].rfind('\n').map_or(0, |it| it + 1);
    text[start..].lines().next().unwrap_or_default().trim()
}

impl ConfigError {
    fn at(text: &str, offset: usize, what: String) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |it| it + 1);
        let column = before[line_start..].chars().count() + 1;
        ConfigError { line: before.matches('\n').count() + 1, column, what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Config::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn a_file_says_what_to_look_for_and_how_often() {
        let text =
            "match_commands = ['java', \"idea\"]\nmatch_argv_substrings = ['/opt/idea']\npoll_interval_ms = 100\n";
        let patterns =
            Patterns { commands: vec!["java".into(), "idea".into()], argv_substrings: vec!["/opt/idea".into()] };
        assert_eq!(Config::parse(text), Ok(Config { patterns, poll_interval: Duration::from_millis(100) }));
    }

    #[test]
    fn everything_may_be_left_out_and_then_it_is_inert() {
        for text in ["", "# nothing yet\n", "match_commands = []\nmatch_argv_substrings = []\n"] {
            let config = Config::parse(text).unwrap();
            assert!(config.patterns.is_empty());
            assert_eq!(config.poll_interval, Duration::from_millis(250));
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_field_and_its_place() {
        for (text, told) in [
            ("match_commands = ['a',\n  '']", "line 2, column 3: match_commands[1]: \"\" must not be blank"),
            ("match_argv_substrings = [' ']", "line 1, column 26: match_argv_substrings[0]: \" \" must not be blank"),
            ("poll_interval_ms = 9", "line 1, column 20: poll_interval_ms: 9 must be between 10 and 60000"),
            ("\npoll_interval_ms = -1", "line 2, column 20: poll_interval_ms: -1 must be between 10 and 60000"),
            ("poll_interval_ms = 60001", "line 1, column 20: poll_interval_ms: 60001 must be between 10 and 60000"),
            (
                "match_commands = [\"a\\u0000\"]",
                "line 1, column 19: match_commands[0]: \"a\\0\" must not contain a NUL, which no name and no argument has",
            ),
        ] {
            assert_eq!(refused(text), told);
        }
        let long = format!("match_commands = ['{}']", "ü".repeat(257));
        assert_eq!(refused(&long), "line 1, column 19: match_commands[0]: must have at most 256 characters, has 257");
        let many = format!("match_commands = [{}]", "'a',".repeat(101));
        assert_eq!(refused(&many), "line 1, column 18: match_commands: must have at most 100 entries, has 101");
        assert!(Config::parse(&many.replacen("'a',", "", 1)).is_ok());
    }

    #[test]
    fn what_is_no_such_file_is_told_with_the_line_that_it_is_in() {
        for (text, told) in [
            ("\nmatch_command = ['a']", "line 2, column 1: unknown field `match_command`"),
            ("match_commands = 'a'", "in: match_commands = 'a'"),
            ("match_commands = [7]", "line 1, column 19: invalid type: integer `7`, expected a string"),
            ("poll_interval_ms = '1s'", "line 1, column 20: invalid type: string \"1s\""),
            ("match_commands = ['a'", "line 1, column "),
            ("match_commands = []\nmatch_commands = []", "line 2, column 1: duplicate key"),
        ] {
            let refused = refused(text);
            assert!(refused.contains(told), "{refused}");
        }
    }

    proptest::proptest! {
        /// Whatever the admission policy lets through, the controller writes so that it is read.
        #[test]
        fn what_the_controller_writes_is_read_as_it_was_meant(
            commands in proptest::collection::vec("(?s)[^\u{0}]{0,20}[^\u{0}\\s][^\u{0}]{0,20}", 1..5),
        ) {
            let text = fivespot_planner::agent::orders(&commands).unwrap();
            let read = Config::parse(&text).unwrap();
            proptest::prop_assert_eq!(read.patterns, Patterns { commands: commands.clone(), argv_substrings: commands });
        }

        #[test]
        fn any_text_is_read_or_refused(text in "(?s).{0,200}", field in "match_commands|poll_interval_ms|") {
            let _ = Config::parse(&format!("{field} = {text}"));
            let _ = Config::parse(&text);
        }
    }
}
