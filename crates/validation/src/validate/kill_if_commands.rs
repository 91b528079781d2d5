//! `spec.killIfCommands`.

use super::{Findings, rules};

pub(super) fn check(commands: &[String], findings: &mut Findings) -> Option<Vec<String>> {
    let mark = findings.mark();
    for (index, command) in commands.iter().enumerate() {
        let is_blank = command.chars().all(|it| it.is_ascii_whitespace());
        if is_blank || command.contains('\0') {
            let detail = Some(format!("killIfCommands[{index}]: {command:?}"));
            findings.add(format!("spec.killIfCommands[{index}]"), rules::COMMAND_FORM, detail);
        }
    }
    findings.none_since(mark).then(|| commands.to_vec())
}
