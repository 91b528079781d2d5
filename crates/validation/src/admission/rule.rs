//! A rule of the policy.

use super::spec_field::SpecField;

/// A condition on the spec, and the message for objects that violate it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub message: &'static str,
    condition: String,
}

impl Rule {
    /// Creates a rule that objects violate if `condition`, an expression over the variables of [`SpecField`], is false.
    pub(super) fn new(message: &'static str, condition: impl Into<String>) -> Self {
        Rule { message, condition: condition.into() }
    }

    /// The fields that the condition reads.
    pub fn fields(&self) -> impl Iterator<Item = &'static SpecField> {
        SpecField::ALL.iter().filter(|field| field.is_read_by(&self.condition))
    }

    /// The expression of the policy: the condition holds, or an update changes none of the fields that it reads.
    pub fn expression(&self) -> String {
        let unchanged: Vec<_> =
            self.fields().map(|field| format!("variables.{}", field.unchanged_variable())).collect();
        let unchanged = match unchanged.as_slice() {
            [only] => only.clone(),
            several => format!("({})", several.join(" && ")),
        };
        format!("{unchanged} ||\n({})", self.condition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_matched_by_whole_name() {
        let rule =
            Rule::new("", "variables.cron.hasValue() || variables.daysOfWeekend != '' || variables.labels == {}");
        let fields: Vec<_> = rule.fields().map(|field| field.name).collect();
        assert_eq!(fields, ["cron", "labels"]);
    }

    #[test]
    fn update_is_validated_only_if_a_field_changed() {
        let rule = Rule::new("", "variables.cron.hasValue() || size(variables.daysOfWeek) > 0");
        assert_eq!(
            rule.expression(),
            "(variables.cronUnchanged && variables.daysOfWeekUnchanged) ||\n\
             (variables.cron.hasValue() || size(variables.daysOfWeek) > 0)"
        );
    }
}
