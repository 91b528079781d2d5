//! What the rules read, each under a name of its own.

/// A field of the spec, as the policy's expressions know it: `variables.<name>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name of the variable.
    pub name: &'static str,
    /// Path of the field, as people write it.
    pub path: &'static str,
    /// The expression that finds it in `object`.
    pub(super) value: &'static str,
}

impl Field {
    /// All of them, in the order in which rules speak of them.
    ///
    /// A list or map that is not there is an empty one. A text that may be absent stays optional where its absence is
    /// not the same as an empty text. What a provider's spec holds has no type.
    pub const ALL: &'static [Field] = &[
        Field::new("clusterName", "spec.clusterName", "object.spec.clusterName"),
        Field::new("gracefulShutdownTimeout", "spec.gracefulShutdownTimeout", "object.spec.gracefulShutdownTimeout"),
        Field::new("nodeDrainTimeout", "spec.nodeDrainTimeout", "object.spec.nodeDrainTimeout"),
        Field::new("cron", "spec.schedule.cron", "object.spec.schedule.?cron"),
        Field::new("daysOfWeek", "spec.schedule.daysOfWeek", "object.spec.schedule.?daysOfWeek.orValue([])"),
        Field::new("hoursOfDay", "spec.schedule.hoursOfDay", "object.spec.schedule.?hoursOfDay.orValue([])"),
        Field::new("duration", "spec.schedule.duration", "object.spec.schedule.?duration"),
        Field::new("overrides", "spec.schedule.overrides", "object.spec.schedule.?overrides.orValue([])"),
        Field::new("bootstrapApiVersion", "spec.bootstrapSpec.apiVersion", "object.spec.bootstrapSpec.apiVersion"),
        Field::new("bootstrapKind", "spec.bootstrapSpec.kind", "object.spec.bootstrapSpec.kind"),
        Field::new(
            "bootstrapNamespace",
            "spec.bootstrapSpec.namespace",
            "object.spec.bootstrapSpec.?namespace.orValue('')",
        ),
        Field::new(
            "bootstrapProviderID",
            "spec.bootstrapSpec.spec.providerID",
            "dyn(object.spec.bootstrapSpec.spec).?providerID",
        ),
        Field::new(
            "infrastructureApiVersion",
            "spec.infrastructureSpec.apiVersion",
            "object.spec.infrastructureSpec.apiVersion",
        ),
        Field::new("infrastructureKind", "spec.infrastructureSpec.kind", "object.spec.infrastructureSpec.kind"),
        Field::new(
            "infrastructureNamespace",
            "spec.infrastructureSpec.namespace",
            "object.spec.infrastructureSpec.?namespace.orValue('')",
        ),
        Field::new(
            "infrastructureProviderID",
            "spec.infrastructureSpec.spec.providerID",
            "dyn(object.spec.infrastructureSpec.spec).?providerID",
        ),
        Field::new("labels", "spec.machineTemplate.labels", "object.spec.?machineTemplate.?labels.orValue({})"),
        Field::new(
            "annotations",
            "spec.machineTemplate.annotations",
            "object.spec.?machineTemplate.?annotations.orValue({})",
        ),
        Field::new("version", "spec.machineTemplate.version", "object.spec.?machineTemplate.?version"),
        Field::new("killIfCommands", "spec.killIfCommands", "object.spec.?killIfCommands.orValue([])"),
        Field::new("nodeTaints", "spec.nodeTaints", "object.spec.?nodeTaints.orValue([])"),
    ];

    const fn new(name: &'static str, path: &'static str, value: &'static str) -> Self {
        Field { name, path, value }
    }

    /// Name of the variable that says whether an update leaves the field as it was.
    pub(super) fn kept(&self) -> String {
        format!("{}Kept", self.name)
    }

    /// The expression behind it.
    pub(super) fn is_kept(&self) -> String {
        let before = self.value.replace("object.spec", "oldObject.spec");
        format!("request.operation == 'UPDATE' && variables.{} == {before}", self.name)
    }

    /// Whether an expression reads the field.
    pub(super) fn is_in(&self, expression: &str) -> bool {
        let variable = format!("variables.{}", self.name);
        let ends_there = |rest: &str| !rest.starts_with(|it: char| it.is_ascii_alphanumeric());
        expression.split(&variable).skip(1).any(ends_there)
    }
}
