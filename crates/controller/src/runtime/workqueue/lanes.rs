//! Due objects by lane and namespace. The first object of all lanes that are not full is found without a scan.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use super::{Entry, Group, Lane, Widths};

pub(super) struct Lanes {
    widths: Widths,
    groups: HashMap<Group, GroupState>,
    /// The first object of each group that has room.
    first: BTreeSet<(Rank, Entry, Lane)>,
    /// How many objects are running that are not urgent and do not wait for a workload cluster.
    active: usize,
    /// Orders groups by the last object that was taken.
    sequence: u64,
}

/// Sorts groups by urgency, then priority, then running objects and the last one taken. For urgent objects, fairness between
/// namespaces comes before priority.
type Rank = (Reverse<bool>, Reverse<u8>, usize, u64);

#[derive(Default)]
struct GroupState {
    running: usize,
    last: u64,
    lanes: HashMap<String, LaneState>,
    /// The first object of each lane that has room.
    first: BTreeSet<(Entry, Lane)>,
}

#[derive(Default)]
struct LaneState {
    running: usize,
    waiting: BTreeSet<Entry>,
}

impl GroupState {
    /// The first object of all lanes that have room.
    fn first(&self) -> Option<(Rank, Entry, Lane)> {
        let (entry, lane) = self.first.first()?;
        let (Reverse(urgent), Reverse(priority), ..) = entry;
        let priority = if *urgent { 0 } else { *priority };
        Some(((Reverse(*urgent), Reverse(priority), self.running, self.last), entry.clone(), lane.clone()))
    }
}

impl Lanes {
    pub(super) fn new(widths: Widths) -> Self {
        Lanes { widths, groups: HashMap::new(), first: BTreeSet::new(), active: 0, sequence: 0 }
    }

    pub(super) fn insert(&mut self, lane: &Lane, entry: Entry) {
        self.update(lane, |_, state| state.waiting.insert(entry));
    }

    pub(super) fn remove(&mut self, lane: &Lane, entry: &Entry) {
        self.update(lane, |_, state| state.waiting.remove(entry));
    }

    /// Takes the first object of all lanes that have room.
    pub(super) fn take(&mut self) -> Option<(Lane, Entry)> {
        let (_, entry, lane) = self.first.first()?.clone();
        // Urgent objects go first, so there is none if this one is not.
        if !is_urgent(&lane) && self.active >= self.widths.total {
            return None;
        }
        self.activate(&lane);
        self.sequence += 1;
        let sequence = self.sequence;
        self.update(&lane, |group, state| {
            state.waiting.remove(&entry);
            state.running += 1;
            *group = (group.0 + 1, sequence);
        });
        Some((lane, entry))
    }

    /// An object of this lane is no longer running.
    pub(super) fn done(&mut self, lane: &Lane) {
        self.deactivate(lane);
        self.update(lane, |group, state| {
            state.running -= 1;
            group.0 -= 1;
        });
    }

    /// A running object of this lane no longer waits for a workload cluster.
    pub(super) fn activate(&mut self, lane: &Lane) {
        self.active += usize::from(!is_urgent(lane));
    }

    /// A running object of this lane waits for a workload cluster.
    pub(super) fn deactivate(&mut self, lane: &Lane) {
        self.active -= usize::from(!is_urgent(lane));
    }

    /// Changes a lane, and the running objects and the last one taken of its group; then what is first, accordingly.
    fn update<T>(&mut self, lane: &Lane, change: impl FnOnce(&mut (usize, u64), &mut LaneState) -> T) {
        let group = self.groups.entry(lane.group.clone()).or_default();
        if let Some(first) = group.first() {
            self.first.remove(&first);
        }
        let state = group.lanes.entry(lane.name.clone()).or_default();
        if let Some(entry) = state.waiting.first() {
            group.first.remove(&(entry.clone(), lane.clone()));
        }
        let mut running_and_last = (group.running, group.last);
        change(&mut running_and_last, state);
        (group.running, group.last) = running_and_last;
        match state.waiting.first() {
            Some(entry) if state.running < self.widths.lane => {
                group.first.insert((entry.clone(), lane.clone()));
            }
            None if state.running == 0 => {
                group.lanes.remove(&lane.name);
            }
            Some(_) | None => {}
        }
        match group.first() {
            Some(first) if group.running < self.widths.namespace => {
                self.first.insert(first);
            }
            None if group.lanes.is_empty() => {
                self.groups.remove(&lane.group);
            }
            Some(_) | None => {}
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.first.is_empty() && self.active == 0
    }
}

fn is_urgent(lane: &Lane) -> bool {
    lane.group.1
}
