//! `spec.killIfCommands`.

use super::ErrorList;
use crate::rules;

pub(super) fn check(commands: &[String], errors: &mut ErrorList) -> Option<Vec<String>> {
    let checkpoint = errors.checkpoint();
    for (index, command) in commands.iter().enumerate() {
        let is_blank = command.chars().all(|it| it.is_ascii_whitespace());
        if is_blank || command.contains('\0') {
            let detail = Some(format!("killIfCommands[{index}]: {command:?}"));
            errors.add(format!("spec.killIfCommands[{index}]"), rules::COMMAND_FORMAT, detail);
        }
    }
    errors.none_since(checkpoint).then(|| commands.to_vec())
}
