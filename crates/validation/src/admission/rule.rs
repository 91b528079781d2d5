//! One rule of the policy.

use super::field::Field;

/// What has to hold, and what is said where it does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What is said; it names the field.
    pub message: &'static str,
    holds: String,
}

impl Rule {
    /// A rule that is broken where `holds`, an expression over the variables of [`Field`], is false.
    pub(super) fn new(message: &'static str, holds: impl Into<String>) -> Self {
        Rule { message, holds: holds.into() }
    }

    /// The fields it reads.
    pub fn reads(&self) -> impl Iterator<Item = &'static Field> {
        Field::ALL.iter().filter(|it| it.is_in(&self.holds))
    }

    /// The expression of the policy: the rule holds, or an update touches none of the fields that it reads.
    pub fn expression(&self) -> String {
        let kept: Vec<_> = self.reads().map(|it| format!("variables.{}", it.kept())).collect();
        let kept = if let [only] = kept.as_slice() { only.clone() } else { format!("({})", kept.join(" && ")) };
        format!("{kept} ||\n({})", self.holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_reads_what_it_names_and_nothing_that_merely_begins_alike() {
        let rule =
            Rule::new("", "variables.cron.hasValue() || variables.daysOfWeekend != '' || variables.labels == {}");
        let reads: Vec<_> = rule.reads().map(|it| it.name).collect();
        assert_eq!(reads, ["cron", "labels"]);
    }

    #[test]
    fn on_an_update_a_rule_is_asked_only_if_a_field_that_it_reads_has_changed() {
        let rule = Rule::new("", "variables.cron.hasValue() || size(variables.daysOfWeek) > 0");
        assert_eq!(
            rule.expression(),
            "(variables.cronKept && variables.daysOfWeekKept) ||\n\
             (variables.cron.hasValue() || size(variables.daysOfWeek) > 0)"
        );
    }
}
