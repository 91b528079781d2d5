//! The agent configuration, `reclaim.toml`.

use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

/// The limits of `spec.killIfCommands`, from which the controller writes the configuration.
const MAX_PATTERNS: usize = 100;
const MAX_PATTERN_CHARACTERS: usize = 256;
/// How much of an invalid line is quoted in the log.
const MAX_QUOTED_CHARACTERS: usize = 300;

/// The text of the longest patterns, with every character escaped, is shorter. A ConfigMap can have 1 MiB, which would take
/// most of the agent's memory to parse.
pub(crate) const MAX_CONFIG_BYTES: usize = 512 << 10;

const DEFAULT_POLL_INTERVAL_MS: u64 = 250;
/// Below is a busy loop, above is too slow for an emergency reclaim, and for the timeout of the readiness probe.
pub(crate) const POLL_INTERVAL_MS: std::ops::RangeInclusive<u64> = 10..=5_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReclaimAgentConfig {
    pub(crate) patterns: Patterns,
    /// Used by the poll detector only, unless --poll-interval is given.
    pub(crate) poll_interval: Duration,
}

/// Which processes match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Patterns {
    /// Compared with the whole process name.
    pub(crate) commands: Vec<String>,
    /// Searched in the command line.
    pub(crate) argv_substrings: Vec<String>,
}

impl Patterns {
    pub(crate) fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.argv_substrings.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.commands.len() + self.argv_substrings.len()
    }
}

/// What is wrong, and where in the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {problem}")]
pub(crate) struct ConfigError {
    line: usize,
    column: usize,
    problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Problem {
    /// The parser's message does not name the field, so the line is quoted.
    #[error("{message}, in: {line}")]
    Syntax { message: String, line: String },
    #[error("the configuration must have at most {MAX_CONFIG_BYTES} bytes")]
    TooLong,
    #[error("{field}: must have at most {MAX_PATTERNS} entries, has {count}")]
    TooManyPatterns { field: &'static str, count: usize },
    /// A blank pattern would match nearly every process.
    #[error("{field}[{index}]: {pattern:?} must not be blank")]
    BlankPattern { field: &'static str, index: usize, pattern: String },
    #[error("{field}[{index}]: {pattern:?} must not contain NUL, which never occurs in a name or an argument")]
    NulInPattern { field: &'static str, index: usize, pattern: String },
    #[error("{field}[{index}]: must have at most {MAX_PATTERN_CHARACTERS} characters, has {count}")]
    PatternTooLong { field: &'static str, index: usize, count: usize },
    #[error(
        "poll_interval_ms: {value} must be between {} and {}", POLL_INTERVAL_MS.start(), POLL_INTERVAL_MS.end()
    )]
    PollInterval { value: i64 },
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

impl ReclaimAgentConfig {
    /// Matches nothing.
    pub(crate) fn empty() -> Self {
        let poll_interval = Duration::from_millis(DEFAULT_POLL_INTERVAL_MS);
        ReclaimAgentConfig { patterns: Patterns::default(), poll_interval }
    }

    /// Whether the agent has nothing to watch for and stays disarmed.
    pub(crate) fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Every field is optional.
    pub(crate) fn parse(text: &str) -> Result<Self, ConfigError> {
        if text.len() > MAX_CONFIG_BYTES {
            return Err(ConfigError::at("", 0, Problem::TooLong));
        }
        let file: File = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let (message, line) = (truncate(error.message()), truncate(line_at(text, at)));
            let problem = Problem::Syntax { message, line };
            ConfigError::at(text, at, problem)
        })?;
        let commands = check_patterns(text, "match_commands", file.match_commands)?;
        let argv_substrings = check_patterns(text, "match_argv_substrings", file.match_argv_substrings)?;
        let poll_interval = check_poll_interval(text, file.poll_interval_ms)?;
        Ok(ReclaimAgentConfig { patterns: Patterns { commands, argv_substrings }, poll_interval })
    }
}

fn check_patterns(
    text: &str,
    field: &'static str,
    list: Option<Spanned<Vec<Spanned<String>>>>,
) -> Result<Vec<String>, ConfigError> {
    let Some(list) = list else { return Ok(Vec::new()) };
    let at = list.span().start;
    let list = list.into_inner();
    if list.len() > MAX_PATTERNS {
        return Err(ConfigError::at(text, at, Problem::TooManyPatterns { field, count: list.len() }));
    }
    let check = |(index, pattern): (usize, Spanned<String>)| {
        let at = pattern.span().start;
        check_pattern(field, index, pattern.into_inner()).map_err(|problem| ConfigError::at(text, at, problem))
    };
    list.into_iter().enumerate().map(check).collect()
}

fn check_pattern(field: &'static str, index: usize, pattern: String) -> Result<String, Problem> {
    let count = pattern.chars().count();
    if pattern.chars().all(|character| character.is_ascii_whitespace()) {
        return Err(Problem::BlankPattern { field, index, pattern });
    }
    if pattern.contains('\0') {
        return Err(Problem::NulInPattern { field, index, pattern });
    }
    if count > MAX_PATTERN_CHARACTERS {
        return Err(Problem::PatternTooLong { field, index, count });
    }
    Ok(pattern)
}

fn check_poll_interval(text: &str, interval: Option<Spanned<i64>>) -> Result<Duration, ConfigError> {
    let Some(interval) = interval else { return Ok(Duration::from_millis(DEFAULT_POLL_INTERVAL_MS)) };
    let at = interval.span().start;
    let value = interval.into_inner();
    match u64::try_from(value) {
        Ok(milliseconds) if POLL_INTERVAL_MS.contains(&milliseconds) => Ok(Duration::from_millis(milliseconds)),
        Ok(_) | Err(_) => Err(ConfigError::at(text, at, Problem::PollInterval { value })),
    }
}

/// A line of the configuration can be as long as all of it.
fn truncate(text: &str) -> String {
    text.chars().take(MAX_QUOTED_CHARACTERS).collect()
}

fn line_at(text: &str, offset: usize) -> &str {
    let start = text[..offset].rfind('\n').map_or(0, |newline| newline + 1);
    text[start..].lines().next().unwrap_or_default().trim()
}

impl ConfigError {
    fn at(text: &str, offset: usize, problem: Problem) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before[line_start..].chars().count() + 1;
        ConfigError { line: before.matches('\n').count() + 1, column, problem }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_error(text: &str) -> String {
        ReclaimAgentConfig::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn all_fields_are_parsed() {
        let text =
            "match_commands = ['java', \"idea\"]\nmatch_argv_substrings = ['/opt/idea']\npoll_interval_ms = 100\n";
        let patterns =
            Patterns { commands: vec!["java".into(), "idea".into()], argv_substrings: vec!["/opt/idea".into()] };
        let poll_interval = Duration::from_millis(100);
        assert_eq!(ReclaimAgentConfig::parse(text), Ok(ReclaimAgentConfig { patterns, poll_interval }));
    }

    #[test]
    fn all_fields_are_optional() {
        for text in ["", "# nothing yet\n", "match_commands = []\nmatch_argv_substrings = []\n"] {
            let config = ReclaimAgentConfig::parse(text).unwrap();
            assert!(config.patterns.is_empty());
            assert_eq!(config.poll_interval, Duration::from_millis(250));
            assert_eq!(config, ReclaimAgentConfig::empty());
        }
    }

    #[test]
    fn invalid_value_is_reported_with_field_and_position() {
        for (text, expected) in [
            ("match_commands = ['a',\n  '']", "line 2, column 3: match_commands[1]: \"\" must not be blank"),
            ("match_argv_substrings = [' ']", "line 1, column 26: match_argv_substrings[0]: \" \" must not be blank"),
            ("poll_interval_ms = 9", "line 1, column 20: poll_interval_ms: 9 must be between 10 and 5000"),
            ("\npoll_interval_ms = -1", "line 2, column 20: poll_interval_ms: -1 must be between 10 and 5000"),
            ("poll_interval_ms = 5001", "line 1, column 20: poll_interval_ms: 5001 must be between 10 and 5000"),
            (
                "match_commands = [\"a\\u0000\"]",
                "line 1, column 19: match_commands[0]: \"a\\0\" must not contain NUL, which never occurs in a name or an \
                 argument",
            ),
        ] {
            assert_eq!(parse_error(text), expected);
        }
        let long = format!("match_commands = ['{}']", "ü".repeat(257));
        assert_eq!(
            parse_error(&long),
            "line 1, column 19: match_commands[0]: must have at most 256 characters, has 257"
        );
        let many = format!("match_commands = [{}]", "'a',".repeat(101));
        assert_eq!(parse_error(&many), "line 1, column 18: match_commands: must have at most 100 entries, has 101");
        assert!(ReclaimAgentConfig::parse(&many.replacen("'a',", "", 1)).is_ok());
    }

    #[test]
    fn oversized_configuration_is_rejected_without_quoting_it() {
        let patterns = vec!["\u{1}".repeat(256); 100];
        let longest = fivespot_planner::agent_config::render(&patterns).unwrap();
        assert!(longest.len() <= MAX_CONFIG_BYTES && ReclaimAgentConfig::parse(&longest).is_ok(), "{}", longest.len());
        let text = format!("match_commands = [{}]", "'a',".repeat(1 << 18));
        assert_eq!(parse_error(&text), "line 1, column 1: the configuration must have at most 524288 bytes");
        let invalid = format!("match_commands = [{}", "'a',".repeat(1 << 16));
        assert!(parse_error(&invalid).len() < 1000);
    }

    #[test]
    fn syntax_error_is_reported_with_its_line() {
        for (text, expected) in [
            ("\nmatch_command = ['a']", "line 2, column 1: unknown field `match_command`"),
            ("match_commands = 'a'", "in: match_commands = 'a'"),
            ("match_commands = [7]", "line 1, column 19: invalid type: integer `7`, expected a string"),
            ("poll_interval_ms = '1s'", "line 1, column 20: invalid type: string \"1s\""),
            ("match_commands = ['a'", "line 1, column "),
            ("match_commands = []\nmatch_commands = []", "line 2, column 1: duplicate key"),
        ] {
            let error = parse_error(text);
            assert!(error.contains(expected), "{error}");
        }
    }

    proptest::proptest! {
        /// For every pattern that the admission policy accepts.
        #[test]
        fn configuration_of_the_controller_is_parsed(
            commands in proptest::collection::vec("(?s)[^\u{0}]{0,20}[^\u{0}\\s][^\u{0}]{0,20}", 1..5),
        ) {
            let text = fivespot_planner::agent_config::render(&commands).unwrap();
            let config = ReclaimAgentConfig::parse(&text).unwrap();
            let patterns = Patterns { commands: commands.clone(), argv_substrings: commands };
            proptest::prop_assert_eq!(config.patterns, patterns);
        }

        #[test]
        fn arbitrary_text_never_panics(text in "(?s).{0,200}", field in "match_commands|poll_interval_ms|") {
            let _ = ReclaimAgentConfig::parse(&format!("{field} = {text}"));
            let _ = ReclaimAgentConfig::parse(&text);
        }
    }
}
