//! The fields of the spec that rules read, as variables of the policy.

/// A field of the spec. Expressions of the policy refer to it as `variables.<name>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecField {
    pub name: &'static str,
    /// Path of the field, such as `spec.schedule.cron`.
    pub path: &'static str,
    /// CEL expression for the value in `object`.
    pub(super) value: &'static str,
}

impl SpecField {
    /// All fields that rules read.
    ///
    /// Absent lists and maps are read as empty. A text is optional where rules distinguish an absent text from an empty one.
    /// Fields of a provider's spec are dynamically typed.
    pub const ALL: &'static [SpecField] = &[
        SpecField::new("clusterName", "spec.clusterName", "object.spec.clusterName"),
        SpecField::new(
            "gracefulShutdownTimeout",
            "spec.gracefulShutdownTimeout",
            "object.spec.gracefulShutdownTimeout",
        ),
        SpecField::new("nodeDrainTimeout", "spec.nodeDrainTimeout", "object.spec.nodeDrainTimeout"),
        SpecField::new("cron", "spec.schedule.cron", "object.spec.schedule.?cron"),
        SpecField::new("daysOfWeek", "spec.schedule.daysOfWeek", "object.spec.schedule.?daysOfWeek.orValue([])"),
        SpecField::new("hoursOfDay", "spec.schedule.hoursOfDay", "object.spec.schedule.?hoursOfDay.orValue([])"),
        SpecField::new("duration", "spec.schedule.duration", "object.spec.schedule.?duration"),
        SpecField::new("overrides", "spec.schedule.overrides", "object.spec.schedule.?overrides.orValue([])"),
        SpecField::new("bootstrapApiVersion", "spec.bootstrapSpec.apiVersion", "object.spec.bootstrapSpec.apiVersion"),
        SpecField::new("bootstrapKind", "spec.bootstrapSpec.kind", "object.spec.bootstrapSpec.kind"),
        SpecField::new(
            "bootstrapNamespace",
            "spec.bootstrapSpec.namespace",
            "object.spec.bootstrapSpec.?namespace.orValue('')",
        ),
        SpecField::new(
            "bootstrapProviderID",
            "spec.bootstrapSpec.spec.providerID",
            "dyn(object.spec.bootstrapSpec.spec).?providerID",
        ),
        SpecField::new("bootstrapSpec", "spec.bootstrapSpec.spec", "dyn(object.spec.bootstrapSpec.spec)"),
        SpecField::new(
            "infrastructureApiVersion",
            "spec.infrastructureSpec.apiVersion",
            "object.spec.infrastructureSpec.apiVersion",
        ),
        SpecField::new("infrastructureKind", "spec.infrastructureSpec.kind", "object.spec.infrastructureSpec.kind"),
        SpecField::new(
            "infrastructureNamespace",
            "spec.infrastructureSpec.namespace",
            "object.spec.infrastructureSpec.?namespace.orValue('')",
        ),
        SpecField::new(
            "infrastructureProviderID",
            "spec.infrastructureSpec.spec.providerID",
            "dyn(object.spec.infrastructureSpec.spec).?providerID",
        ),
        SpecField::new(
            "infrastructureSpec",
            "spec.infrastructureSpec.spec",
            "dyn(object.spec.infrastructureSpec.spec)",
        ),
        SpecField::new("labels", "spec.machineTemplate.labels", "object.spec.?machineTemplate.?labels.orValue({})"),
        SpecField::new(
            "annotations",
            "spec.machineTemplate.annotations",
            "object.spec.?machineTemplate.?annotations.orValue({})",
        ),
        SpecField::new("version", "spec.machineTemplate.version", "object.spec.?machineTemplate.?version"),
        SpecField::new("killIfCommands", "spec.killIfCommands", "object.spec.?killIfCommands.orValue([])"),
        SpecField::new("nodeTaints", "spec.nodeTaints", "object.spec.?nodeTaints.orValue([])"),
    ];

    const fn new(name: &'static str, path: &'static str, value: &'static str) -> Self {
        SpecField { name, path, value }
    }

    /// Name of the variable that is true if an update leaves the field unchanged.
    pub(super) fn unchanged_variable(&self) -> String {
        format!("{}Unchanged", self.name)
    }

    pub(super) fn unchanged_expression(&self) -> String {
        let old_value = self.value.replace("object.spec", "oldObject.spec");
        format!("request.operation == 'UPDATE' && variables.{} == {old_value}", self.name)
    }

    /// Whether an expression reads the field.
    pub(super) fn is_read_by(&self, expression: &str) -> bool {
        let variable = format!("variables.{}", self.name);
        let is_whole_name = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric());
        expression.split(&variable).skip(1).any(is_whole_name)
    }
}
