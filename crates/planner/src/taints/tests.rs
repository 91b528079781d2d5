//! A table of single cases, and random histories of users, other clients and restarts.

use proptest::prelude::*;

use super::*;

/// Parses `key=value:Effect` or `key:Effect`.
fn taint(text: &str) -> NodeTaint {
    let (key_value, effect) = text.split_once(':').unwrap();
    let (key, value) =
        key_value.split_once('=').map_or((key_value, None), |(key, value)| (key, Some(value.to_owned())));
    let effect = from_taint(&Taint { effect: effect.to_owned(), ..Taint::default() }).unwrap().effect;
    NodeTaint { key: key.to_owned(), value, effect }
}

fn taints(texts: &[&str]) -> Vec<NodeTaint> {
    texts.iter().map(|it| taint(it)).collect()
}

fn node_taints(texts: &[&str]) -> Vec<Taint> {
    texts.iter().map(|it| to_taint(&taint(it))).collect()
}

#[test]
fn diff_table() {
    struct Case {
        desired: &'static [&'static str],
        on_node: &'static [&'static str],
        recorded: &'static [&'static str],
        written: &'static [&'static str],
        applied: &'static [&'static str],
        conflicts: usize,
    }
    #[rustfmt::skip]
    let cases = [
        // Applied, and restored after another client removed it.
        Case { desired: &["a=1:NoSchedule"], on_node: &[], recorded: &[], written: &["a=1:NoSchedule"], applied: &["a=1:NoSchedule"], conflicts: 0 },
        Case { desired: &["a=1:NoSchedule"], on_node: &[], recorded: &["a=1:NoSchedule"], written: &["a=1:NoSchedule"], applied: &["a=1:NoSchedule"], conflicts: 0 },
        // A changed value is updated in place.
        Case { desired: &["a=2:NoSchedule"], on_node: &["a=1:NoSchedule", "b:NoExecute"], recorded: &["a=1:NoSchedule"], written: &["a=2:NoSchedule", "b:NoExecute"], applied: &["a=2:NoSchedule"], conflicts: 0 },
        // The effect is part of a taint's identity.
        Case { desired: &["a=1:NoExecute"], on_node: &["a=1:NoSchedule"], recorded: &["a=1:NoSchedule"], written: &["a=1:NoExecute"], applied: &["a=1:NoExecute"], conflicts: 0 },
        // An admin's taint with the same key and effect stays the admin's, whatever its value; other taints are applied.
        Case { desired: &["a=1:NoSchedule", "b:NoExecute"], on_node: &["a=2:NoSchedule"], recorded: &[], written: &["a=2:NoSchedule", "b:NoExecute"], applied: &["b:NoExecute"], conflicts: 1 },
        Case { desired: &["a=1:NoSchedule"], on_node: &["a=1:NoSchedule"], recorded: &[], written: &["a=1:NoSchedule"], applied: &[], conflicts: 1 },
        // No longer desired: only a taint that the controller applied is removed, and only with the value it applied.
        Case { desired: &[], on_node: &["a=1:NoSchedule", "b:NoExecute"], recorded: &["a=1:NoSchedule"], written: &["b:NoExecute"], applied: &[], conflicts: 0 },
        Case { desired: &[], on_node: &["a=2:NoSchedule"], recorded: &["a=1:NoSchedule"], written: &["a=2:NoSchedule"], applied: &["a=1:NoSchedule"], conflicts: 1 },
        Case { desired: &[], on_node: &[], recorded: &["a=1:NoSchedule"], written: &[], applied: &[], conflicts: 0 },
        // An applied taint whose value an admin changed is left alone, desired or not.
        Case { desired: &["a=1:NoSchedule"], on_node: &["a=2:NoSchedule"], recorded: &["a=1:NoSchedule"], written: &["a=2:NoSchedule"], applied: &["a=1:NoSchedule"], conflicts: 1 },
        // No value and an empty value are equal.
        Case { desired: &["a:NoSchedule"], on_node: &["a=:NoSchedule"], recorded: &["a:NoSchedule"], written: &["a=:NoSchedule"], applied: &["a:NoSchedule"], conflicts: 0 },
    ];
    for case in &cases {
        let context = format!("{:?} on {:?}, recorded {:?}", case.desired, case.on_node, case.recorded);
        let diff = diff(&taints(case.desired), &node_taints(case.on_node), &taints(case.recorded));
        assert_eq!(diff.taints, node_taints(case.written), "{context}");
        assert_eq!(diff.applied, taints(case.applied), "{context}");
        assert_eq!(diff.conflicts.len(), case.conflicts, "{context}");
        assert_eq!(diff.is_changed, case.written != case.on_node || case.applied != case.recorded, "{context}");
    }
}

#[test]
fn conflict_names_the_taint() {
    let added = diff(&taints(&["a=1:NoSchedule"]), &node_taints(&["a=2:NoSchedule"]), &[]);
    assert_eq!(added.conflicts[0].to_string(), "taint a=2:NoSchedule was applied by another client");
    let changed = diff(&[], &node_taints(&["a:NoExecute"]), &taints(&["a=1:NoExecute"]));
    assert_eq!(changed.conflicts[0].to_string(), "taint a:NoExecute was changed by another client");
}

#[test]
fn record_round_trips_and_garbage_records_nothing() {
    let applied = taints(&["a=1:NoSchedule", "example.com/b:NoExecute"]);
    assert_eq!(recorded(&record(&applied).unwrap()), Some(applied));
    assert_eq!(record(&[]), None);
    for garbage in ["", "{}", "[1]", "null", "[{\"key\":\"a\",\"effect\":\"Never\"}]"] {
        assert_eq!(recorded(garbage), None, "{garbage}");
    }
}

/// A Node with the controller's record, and the taints that the spec asks for.
#[derive(Clone, Debug, Default)]
struct Simulation {
    desired: Vec<NodeTaint>,
    taints: Vec<Taint>,
    record: Vec<NodeTaint>,
    /// Taints that other clients added or changed and have not removed since.
    foreign: Vec<Taint>,
}

#[derive(Clone, Debug)]
enum Step {
    EditSpec(Vec<NodeTaint>),
    /// Another client adds a taint or changes its value.
    OtherSets(NodeTaint),
    OtherRemoves(NodeTaint),
    /// Depends only on what the Node has, so a crash before the status is stored changes nothing.
    Reconcile,
}

impl Simulation {
    fn apply(&mut self, step: &Step) {
        match step {
            Step::EditSpec(desired) => self.desired.clone_from(desired),
            Step::OtherSets(taint) => {
                let taint = to_taint(taint);
                let existing = self.taints.iter().position(|it| same_key_and_effect(it, &taint));
                match existing {
                    // Writing an equal value changes no ownership.
                    Some(at) if self.taints[at] == taint => return,
                    Some(at) => self.taints[at] = taint.clone(),
                    None => self.taints.push(taint.clone()),
                }
                self.foreign.retain(|it| !same_key_and_effect(it, &taint));
                self.foreign.push(taint);
            }
            Step::OtherRemoves(taint) => {
                let taint = to_taint(taint);
                self.taints.retain(|it| !same_key_and_effect(it, &taint));
                self.foreign.retain(|it| !same_key_and_effect(it, &taint));
            }
            Step::Reconcile => {
                let diff = diff(&self.desired, &self.taints, &self.record);
                if diff.is_changed {
                    (self.taints, self.record) = (diff.taints, diff.applied);
                }
            }
        }
        // A taint whose recorded value was restored is the controller's again.
        let record = &self.record;
        self.foreign.retain(|it| {
            !record.iter().any(|own| is_same(own, it) && value(own) == it.value.as_deref().unwrap_or_default())
        });
    }
}

fn same_key_and_effect(a: &Taint, b: &Taint) -> bool {
    (&a.key, &a.effect) == (&b.key, &b.effect)
}

fn any_taint() -> impl Strategy<Value = NodeTaint> {
    let effect = prop::sample::select(vec![TaintEffect::NoSchedule, TaintEffect::NoExecute]);
    let value = prop::sample::select(vec![None, Some(String::new()), Some("1".to_owned()), Some("2".to_owned())]);
    (prop::sample::select(vec!["a", "b", "c"]), value, effect).prop_map(|(key, value, effect)| NodeTaint {
        key: key.to_owned(),
        value,
        effect,
    })
}

fn any_desired() -> impl Strategy<Value = Vec<NodeTaint>> {
    prop::collection::vec(any_taint(), 0..4).prop_map(|mut taints| {
        taints.sort_by(|a, b| (&a.key, a.effect).cmp(&(&b.key, b.effect)));
        taints.dedup_by(|a, b| (&a.key, a.effect) == (&b.key, b.effect));
        taints
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => any_desired().prop_map(Step::EditSpec),
        2 => any_taint().prop_map(Step::OtherSets),
        1 => any_taint().prop_map(Step::OtherRemoves),
        4 => Just(Step::Reconcile),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn foreign_taints_stay_and_own_taints_are_never_left_behind(
        steps in prop::collection::vec(any_step(), 0..30)
    ) {
        let mut node = Simulation::default();
        for step in &steps {
            let foreign_before = node.foreign.clone();
            node.apply(step);
            if matches!(step, Step::Reconcile) {
                for foreign in &foreign_before {
                    prop_assert!(node.taints.contains(foreign), "{foreign:?} was lost or changed: {node:?}");
                }
                let again = diff(&node.desired, &node.taints, &node.record);
                prop_assert!(!again.is_changed, "a second write: {again:?} of {node:?}");
                prop_assert_eq!(&again.taints, &node.taints);
                for desired in &node.desired {
                    prop_assert!(node.taints.iter().any(|it| is_same(desired, it)), "{desired:?} is missing: {node:?}");
                }
            }
            for taint in &node.taints {
                let is_foreign = node.foreign.contains(taint);
                prop_assert!(is_foreign || find(&node.record, taint).is_some(), "{taint:?} has no owner: {node:?}");
            }
        }
        // Removing all taints from the spec leaves exactly the foreign ones.
        node.apply(&Step::EditSpec(Vec::new()));
        node.apply(&Step::Reconcile);
        let sorted = |mut it: Vec<Taint>| {
            it.sort_by(|a, b| (&a.key, &a.effect).cmp(&(&b.key, &b.effect)));
            it
        };
        prop_assert_eq!(sorted(node.taints), sorted(node.foreign));
    }
}
