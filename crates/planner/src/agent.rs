//! What the reclaim agent on a Node is told: the text of its `reclaim.toml`.

use serde::Serialize;

/// The file. A pattern may be the whole name of a program or a part of its command line, so it is in both lists.
#[derive(Serialize)]
struct Orders<'a> {
    match_commands: &'a [String],
    match_argv_substrings: &'a [String],
}

/// The text that tells the agent to look for these programs; `None` if there is nothing to look for.
pub fn orders(commands: &[String]) -> Option<String> {
    if commands.is_empty() {
        return None;
    }
    // Lists of strings always have a form in TOML.
    toml::to_string(&Orders { match_commands: commands, match_argv_substrings: commands }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_looked_for_in_names_and_in_command_lines() {
        let text = orders(&["java".to_owned(), "/opt/idea/bin".to_owned()]).unwrap();
        assert_eq!(
            text,
            "match_commands = [\"java\", \"/opt/idea/bin\"]\nmatch_argv_substrings = [\"java\", \"/opt/idea/bin\"]\n"
        );
    }

    #[test]
    fn without_a_program_there_are_no_orders() {
        assert_eq!(orders(&[]), None);
    }

    proptest::proptest! {
        #[test]
        fn whatever_a_pattern_holds_it_arrives_as_it_is(patterns in proptest::collection::vec("(?s).{1,20}", 1..5)) {
            let read: toml::Table = toml::from_str(&orders(&patterns).unwrap()).unwrap();
            for list in ["match_commands", "match_argv_substrings"] {
                let read: Vec<String> = read[list].as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned()).collect();
                proptest::prop_assert_eq!(&read, &patterns);
            }
        }
    }
}
