//! Single cases in words, and random histories of users, admins, the node lifecycle and restarts.

use proptest::prelude::*;

use super::*;

fn ours(text: &str) -> NodeTaint {
    let (rest, effect) = text.split_once(':').unwrap();
    let (key, value) = rest.split_once('=').map_or((rest, None), |(key, value)| (key, Some(value.to_owned())));
    let effect = read(&Taint { effect: effect.to_owned(), ..Taint::default() }).unwrap().effect;
    NodeTaint { key: key.to_owned(), value, effect }
}

fn all(texts: &[&str]) -> Vec<NodeTaint> {
    texts.iter().map(|it| ours(it)).collect()
}

fn on_node(texts: &[&str]) -> Vec<Taint> {
    texts.iter().map(|it| written(&ours(it))).collect()
}

#[test]
fn each_case_is_as_the_documentation_says() {
    struct Case {
        wanted: &'static [&'static str],
        on_node: &'static [&'static str],
        recorded: &'static [&'static str],
        then: &'static [&'static str],
        applied: &'static [&'static str],
        conflicts: usize,
    }
    #[rustfmt::skip]
    let cases = [
        // Applied, and applied again after somebody took it off.
        Case { wanted: &["a=1:NoSchedule"], on_node: &[], recorded: &[], then: &["a=1:NoSchedule"], applied: &["a=1:NoSchedule"], conflicts: 0 },
        Case { wanted: &["a=1:NoSchedule"], on_node: &[], recorded: &["a=1:NoSchedule"], then: &["a=1:NoSchedule"], applied: &["a=1:NoSchedule"], conflicts: 0 },
        // A value that changes is an update, in its place.
        Case { wanted: &["a=2:NoSchedule"], on_node: &["a=1:NoSchedule", "b:NoExecute"], recorded: &["a=1:NoSchedule"], then: &["a=2:NoSchedule", "b:NoExecute"], applied: &["a=2:NoSchedule"], conflicts: 0 },
        // The effect is part of what a taint is.
        Case { wanted: &["a=1:NoExecute"], on_node: &["a=1:NoSchedule"], recorded: &["a=1:NoSchedule"], then: &["a=1:NoExecute"], applied: &["a=1:NoExecute"], conflicts: 0 },
        // An admin's taint of the same key and effect is theirs, with another value and with the same; the rest is applied.
        Case { wanted: &["a=1:NoSchedule", "b:NoExecute"], on_node: &["a=2:NoSchedule"], recorded: &[], then: &["a=2:NoSchedule", "b:NoExecute"], applied: &["b:NoExecute"], conflicts: 1 },
        Case { wanted: &["a=1:NoSchedule"], on_node: &["a=1:NoSchedule"], recorded: &[], then: &["a=1:NoSchedule"], applied: &[], conflicts: 1 },
        // Not wanted any more: only what we applied goes, and only as we applied it.
        Case { wanted: &[], on_node: &["a=1:NoSchedule", "b:NoExecute"], recorded: &["a=1:NoSchedule"], then: &["b:NoExecute"], applied: &[], conflicts: 0 },
        Case { wanted: &[], on_node: &["a=2:NoSchedule"], recorded: &["a=1:NoSchedule"], then: &["a=2:NoSchedule"], applied: &["a=1:NoSchedule"], conflicts: 1 },
        Case { wanted: &[], on_node: &[], recorded: &["a=1:NoSchedule"], then: &[], applied: &[], conflicts: 0 },
        // An admin who changes ours keeps it, wanted or not.
        Case { wanted: &["a=1:NoSchedule"], on_node: &["a=2:NoSchedule"], recorded: &["a=1:NoSchedule"], then: &["a=2:NoSchedule"], applied: &["a=1:NoSchedule"], conflicts: 1 },
        // No value and an empty value are the same.
        Case { wanted: &["a:NoSchedule"], on_node: &["a=:NoSchedule"], recorded: &["a:NoSchedule"], then: &["a=:NoSchedule"], applied: &["a:NoSchedule"], conflicts: 0 },
    ];
    for case in &cases {
        let said = format!("{:?} on {:?}, recorded {:?}", case.wanted, case.on_node, case.recorded);
        let diff = diff(&all(case.wanted), &on_node(case.on_node), &all(case.recorded));
        assert_eq!(diff.taints, on_node(case.then), "{said}");
        assert_eq!(diff.applied, all(case.applied), "{said}");
        assert_eq!(diff.conflicts.len(), case.conflicts, "{said}");
        assert_eq!(diff.is_news, case.then != case.on_node || case.applied != case.recorded, "{said}");
    }
}

#[test]
fn a_conflict_names_the_taint_and_what_became_of_it() {
    let theirs = diff(&all(&["a=1:NoSchedule"]), &on_node(&["a=2:NoSchedule"]), &[]);
    assert_eq!(theirs.conflicts[0].to_string(), "taint a=2:NoSchedule is somebody else's");
    let changed = diff(&[], &on_node(&["a:NoExecute"]), &all(&["a=1:NoExecute"]));
    assert_eq!(changed.conflicts[0].to_string(), "taint a:NoExecute was changed by somebody else");
}

#[test]
fn a_record_is_read_as_it_was_written_and_garbage_records_nothing() {
    let applied = all(&["a=1:NoSchedule", "example.com/b:NoExecute"]);
    assert_eq!(recorded(&record(&applied).unwrap()), Some(applied));
    assert_eq!(record(&[]), None);
    for garbage in ["", "{}", "[1]", "null", "[{\"key\":\"a\",\"effect\":\"Never\"}]"] {
        assert_eq!(recorded(garbage), None, "{garbage}");
    }
}

/// A Node, our record on it, and what the user wants.
#[derive(Clone, Debug, Default)]
struct World {
    wanted: Vec<NodeTaint>,
    taints: Vec<Taint>,
    record: Vec<NodeTaint>,
    /// What others have put there or changed, and not taken away again.
    theirs: Vec<Taint>,
}

/// What somebody does.
#[derive(Clone, Debug)]
enum Step {
    UserWants(Vec<NodeTaint>),
    /// Puts a taint there, or changes its value.
    OtherSets(NodeTaint),
    OtherRemoves(NodeTaint),
    /// A pass, and whether it dies before it can tell of it: nothing that it needs is told elsewhere.
    WePass,
}

impl World {
    fn take(&mut self, step: &Step) {
        match step {
            Step::UserWants(wanted) => self.wanted.clone_from(wanted),
            Step::OtherSets(taint) => {
                let taint = written(taint);
                let before = self.taints.iter().position(|it| is_same(it, &taint));
                match before {
                    // Writing what is there already is no change of anybody's.
                    Some(at) if self.taints[at] == taint => return,
                    Some(at) => self.taints[at] = taint.clone(),
                    None => self.taints.push(taint.clone()),
                }
                self.theirs.retain(|it| !is_same(it, &taint));
                self.theirs.push(taint);
            }
            Step::OtherRemoves(taint) => {
                let taint = written(taint);
                self.taints.retain(|it| !is_same(it, &taint));
                self.theirs.retain(|it| !is_same(it, &taint));
            }
            Step::WePass => {
                let diff = diff(&self.wanted, &self.taints, &self.record);
                if diff.is_news {
                    (self.taints, self.record) = (diff.taints, diff.applied);
                }
            }
        }
        // A value that somebody brought back to what we had written is ours again: that is what the record says.
        let record = &self.record;
        self.theirs.retain(|it| {
            !record.iter().any(|ours| is_of(ours, it) && value(ours) == it.value.as_deref().unwrap_or_default())
        });
    }
}

fn is_same(a: &Taint, b: &Taint) -> bool {
    (&a.key, &a.effect) == (&b.key, &b.effect)
}

fn taint() -> impl Strategy<Value = NodeTaint> {
    let effect = prop::sample::select(vec![TaintEffect::NoSchedule, TaintEffect::NoExecute]);
    let value = prop::sample::select(vec![None, Some(String::new()), Some("1".to_owned()), Some("2".to_owned())]);
    (prop::sample::select(vec!["a", "b", "c"]), value, effect).prop_map(|(key, value, effect)| NodeTaint {
        key: key.to_owned(),
        value,
        effect,
    })
}

fn wanted() -> impl Strategy<Value = Vec<NodeTaint>> {
    prop::collection::vec(taint(), 0..4).prop_map(|mut taints| {
        taints.sort_by(|a, b| (&a.key, a.effect).cmp(&(&b.key, b.effect)));
        taints.dedup_by(|a, b| (&a.key, a.effect) == (&b.key, b.effect));
        taints
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => wanted().prop_map(Step::UserWants),
        2 => taint().prop_map(Step::OtherSets),
        1 => taint().prop_map(Step::OtherRemoves),
        4 => Just(Step::WePass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn whatever_happens_theirs_stay_as_they_are_and_ours_are_never_left_behind(
        steps in prop::collection::vec(step(), 0..30)
    ) {
        let mut world = World::default();
        for step in &steps {
            let before = world.theirs.clone();
            world.take(step);
            if matches!(step, Step::WePass) {
                for theirs in &before {
                    prop_assert!(world.taints.contains(theirs), "{theirs:?} was lost or changed: {world:?}");
                }
                let again = diff(&world.wanted, &world.taints, &world.record);
                prop_assert!(!again.is_news, "a second write: {again:?} of {world:?}");
                prop_assert_eq!(&again.taints, &world.taints);
                for wanted in &world.wanted {
                    prop_assert!(world.taints.iter().any(|it| is_of(wanted, it)), "{wanted:?} is missing: {world:?}");
                }
            }
            for taint in &world.taints {
                let theirs = world.theirs.contains(taint);
                prop_assert!(theirs || of(&world.record, taint).is_some(), "{taint:?} is nobody's: {world:?}");
            }
        }
        // In the end nothing is wanted any more.
        world.take(&Step::UserWants(Vec::new()));
        world.take(&Step::WePass);
        let sorted = |mut it: Vec<Taint>| {
            it.sort_by(|a, b| (&a.key, &a.effect).cmp(&(&b.key, &b.effect)));
            it
        };
        prop_assert_eq!(sorted(world.taints), sorted(world.theirs));
    }
}
