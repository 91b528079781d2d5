//! Due objects by lane and namespace. The first object of all lanes that are not full is found without a scan.

use std::collections::{BTreeSet, HashMap};

use super::{Entry, Group, Lane, Widths};

pub(super) struct Lanes {
    widths: Widths,
    groups: HashMap<Group, GroupState>,
    /// The first object of each group that has room, and its lane.
    first: BTreeSet<(Entry, Lane)>,
}

#[derive(Default)]
struct GroupState {
    running: usize,
    lanes: HashMap<String, LaneState>,
    /// The first object of each lane that has room.
    first: BTreeSet<(Entry, Lane)>,
}

#[derive(Default)]
struct LaneState {
    running: usize,
    waiting: BTreeSet<Entry>,
}

impl Lanes {
    pub(super) fn new(widths: Widths) -> Self {
        Lanes { widths, groups: HashMap::new(), first: BTreeSet::new() }
    }

    pub(super) fn insert(&mut self, lane: &Lane, entry: Entry) {
        self.update(lane, |_, state| state.waiting.insert(entry));
    }

    pub(super) fn remove(&mut self, lane: &Lane, entry: &Entry) {
        self.update(lane, |_, state| state.waiting.remove(entry));
    }

    /// Takes the first object of all lanes that have room.
    pub(super) fn take(&mut self) -> Option<(Lane, Entry)> {
        let (entry, lane) = self.first.first().cloned()?;
        self.update(&lane, |running, state| {
            state.waiting.remove(&entry);
            state.running += 1;
            *running += 1;
        });
        Some((lane, entry))
    }

    /// An object of this lane is no longer running.
    pub(super) fn done(&mut self, lane: &Lane) {
        self.update(lane, |running, state| {
            state.running -= 1;
            *running -= 1;
        });
    }

    /// Changes a lane and the number of running objects of its group, and what is first accordingly.
    fn update<T>(&mut self, lane: &Lane, change: impl FnOnce(&mut usize, &mut LaneState) -> T) {
        let group = self.groups.entry(lane.group.clone()).or_default();
        if let Some(first) = group.first.first() {
            self.first.remove(first);
        }
        let state = group.lanes.entry(lane.name.clone()).or_default();
        if let Some(entry) = state.waiting.first() {
            group.first.remove(&(entry.clone(), lane.clone()));
        }
        change(&mut group.running, state);
        match state.waiting.first() {
            Some(entry) if state.running < self.widths.lane => {
                group.first.insert((entry.clone(), lane.clone()));
            }
            None if state.running == 0 => {
                group.lanes.remove(&lane.name);
            }
            Some(_) | None => {}
        }
        match group.first.first() {
            Some(first) if group.running < self.widths.namespace => {
                self.first.insert(first.clone());
            }
            None if group.lanes.is_empty() => {
                self.groups.remove(&lane.group);
            }
            Some(_) | None => {}
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.first.is_empty()
    }
}
