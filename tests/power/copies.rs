//! The steps of a caller that are about snapshots and groups.

use std::collections::BTreeSet;

use orlop_tests::GroupSnapshotExt;

use crate::caller::{Caller, answered};
use crate::expected_state::Snapshot;
use crate::history::{GroupState, History, SnapshotState};

impl Caller {
    pub(crate) async fn snapshot(&mut self) -> bool {
        let Some(at) = self.any_volume(|_| true) else { return false };
        let (name, source) = (self.new_name("snapshot"), self.id_of(at));
        let client = self.client.clone();
        let begun = self.clock.now();
        let made = answered("snapshot", || client.snapshot(&name, &source)).await;
        self.remember(at, made.snapshot_id, begun, false);
        true
    }

    /// The caller itself is the only one who writes, so what was cut is known exactly.
    fn remember(&mut self, source: usize, id: String, begun: u64, in_group: bool) {
        let ended = self.clock.now();
        let volume = &self.expected.volumes[source];
        let state = volume.state();
        let mut history = History::new(id);
        let cut = SnapshotState { size: state.size, contents: state.contents };
        history.record(begun, ended, Some(cut));
        let capability = volume.node.capability.clone();
        self.expected.snapshots.push(Snapshot { history, capability, in_group });
    }

    pub(crate) async fn delete_snapshot(&mut self) -> bool {
        let Some(at) = self.any_snapshot(|snapshot| !snapshot.in_group) else { return false };
        let (id, client) = (self.expected.snapshots[at].history.id.clone(), self.client.clone());
        let begun = self.clock.now();
        answered("delete a snapshot", || client.delete_snapshot(&id)).await;
        let ended = self.clock.now();
        self.expected.snapshots[at].history.record(begun, ended, None);
        true
    }

    pub(crate) async fn group_snapshot(&mut self) -> bool {
        let Some(first) = self.any_volume(|_| true) else { return false };
        let first_id = self.id_of(first);
        let Some(second) = self.any_volume(|volume| volume.history.id != first_id) else {
            return false;
        };
        let (name, client) = (self.new_name("group snapshot"), self.client.clone());
        let sources = [first_id, self.id_of(second)];
        let begun = self.clock.now();
        let made = answered("group snapshot", || client.group_snapshot(&name, &sources)).await;
        for (at, source) in [first, second].into_iter().zip(&sources) {
            self.remember(at, made.member_of(source).snapshot_id.clone(), begun, true);
        }
        let members = made.member_ids().into_iter().collect();
        let mut history = History::new(made.group_snapshot_id);
        history.record(begun, self.clock.now(), Some(GroupState { members }));
        self.expected.group_snapshots.push(history);
        true
    }

    pub(crate) async fn delete_group_snapshot(&mut self) -> bool {
        let there = self.expected.group_snapshots.iter().position(History::is_there);
        let Some(at) = there else { return false };
        let history = &self.expected.group_snapshots[at];
        let (id, client) = (history.id.clone(), self.client.clone());
        let members = history.now().expect("a group that is there").members.clone();
        let named: Vec<_> = members.iter().cloned().collect();
        let begun = self.clock.now();
        let delete = || client.delete_group_snapshot(&id, &named);
        answered("delete a group snapshot", delete).await;
        let ended = self.clock.now();
        self.expected.group_snapshots[at].record(begun, ended, None);
        let of_group = |snapshot: &&mut Snapshot| members.contains(&snapshot.history.id);
        for snapshot in self.expected.snapshots.iter_mut().filter(of_group) {
            snapshot.history.record(begun, ended, None);
        }
        true
    }

    pub(crate) async fn make_group(&mut self) -> bool {
        let Some(at) = self.any_volume(|volume| !volume.in_group) else { return false };
        if self.expected.volume_groups.iter().any(History::is_there) {
            return false;
        }
        let (name, member) = (self.new_name("group"), self.id_of(at));
        let begun = self.clock.now();
        let made = self.groups.create(&name, &[&member]).await.expect("make a group");
        let mut history = History::new(made.volume_group_id);
        let state = GroupState { members: BTreeSet::from([member]) };
        history.record(begun, self.clock.now(), Some(state));
        self.expected.volume_groups.push(history);
        self.expected.volumes[at].in_group = true;
        true
    }

    pub(crate) async fn change_group(&mut self) -> bool {
        let Some(at) = self.any_volume(|volume| !volume.in_group) else { return false };
        let members = BTreeSet::from([self.id_of(at)]);
        self.set_members(members).await
    }

    pub(crate) async fn empty_group(&mut self) -> bool {
        self.set_members(BTreeSet::new()).await
    }

    async fn set_members(&mut self, members: BTreeSet<String>) -> bool {
        let there = self.expected.volume_groups.iter().position(History::is_there);
        let Some(group) = there else { return false };
        let named: Vec<_> = members.iter().map(String::as_str).collect();
        let id = self.expected.volume_groups[group].id.clone();
        let begun = self.clock.now();
        self.groups.modify(&id, &named).await.expect("change a group");
        let ended = self.clock.now();
        for volume in &mut self.expected.volumes {
            volume.in_group = members.contains(&volume.history.id);
        }
        self.expected.volume_groups[group].record(begun, ended, Some(GroupState { members }));
        true
    }

    /// Only an empty one can be deleted.
    pub(crate) async fn delete_group(&mut self) -> bool {
        let is_empty = |history: &History<GroupState>| {
            history.now().is_some_and(|state| state.members.is_empty())
        };
        let Some(at) = self.expected.volume_groups.iter().position(is_empty) else { return false };
        let id = self.expected.volume_groups[at].id.clone();
        let begun = self.clock.now();
        self.groups.delete(&id).await.expect("delete a group");
        let ended = self.clock.now();
        self.expected.volume_groups[at].record(begun, ended, None);
        true
    }
}
