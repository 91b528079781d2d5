//! Configuration of the reclaim agent: the content of its `reclaim.toml`.

use serde::Serialize;

/// A pattern can be the name of a program or a part of its command line, so each is in both lists.
#[derive(Serialize)]
struct ReclaimAgentConfig<'a> {
    match_commands: &'a [String],
    match_argv_substrings: &'a [String],
}

/// Renders the configuration for `killIfCommands`; `None` if there are no commands.
pub fn render(commands: &[String]) -> Option<String> {
    if commands.is_empty() {
        return None;
    }
    // Serializing lists of strings to TOML does not fail.
    toml::to_string(&ReclaimAgentConfig { match_commands: commands, match_argv_substrings: commands }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_is_matched_against_names_and_command_lines() {
        let text = render(&["java".to_owned(), "/opt/idea/bin".to_owned()]).unwrap();
        assert_eq!(
            text,
            "match_commands = [\"java\", \"/opt/idea/bin\"]\nmatch_argv_substrings = [\"java\", \"/opt/idea/bin\"]\n"
        );
    }

    #[test]
    fn no_commands_no_configuration() {
        assert_eq!(render(&[]), None);
    }

    proptest::proptest! {
        #[test]
        fn patterns_survive_serialization(patterns in proptest::collection::vec("(?s).{1,20}", 1..5)) {
            let read: toml::Table = toml::from_str(&render(&patterns).unwrap()).unwrap();
            for list in ["match_commands", "match_argv_substrings"] {
                let read: Vec<String> = read[list].as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned()).collect();
                proptest::prop_assert_eq!(&read, &patterns);
            }
        }
    }
}
