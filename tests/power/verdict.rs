//! Does a copy of the disk hold what was answered, whole, and nothing else?

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use orlop_sys::file;
use orlop_tests::{Client, Code, Daemon, MIB, Pattern, VolumeCapabilityExt, VolumeGroups, v1};

use crate::known::{Known, SLOT, Snapshot, Volume, holds};
use crate::life::{GroupState, Life, Moment, SnapshotState, VolumeState};
use crate::round::{Aftermath, Cut, Figures, NODE};

/// How many are staged and read if not all are: those that were touched last, which a cut would
/// take first.
const FRESHEST: usize = 2;
/// For space that is freed in the background.
const PATIENCE: Duration = Duration::from_secs(120);
/// Metadata of the pool's filesystem that stays when files are gone.
const SLACK: u64 = 16 * MIB;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    Freshest,
    /// Everything is used, and then deleted.
    Whole,
}

pub(crate) struct Verdict<'a> {
    client: Client,
    root: PathBuf,
    free_when_empty: u64,
    moment: Moment,
    known: &'a [Known],
    figures: &'a mut Figures,
    volumes: BTreeMap<String, v1::list_volumes_response::Entry>,
    snapshots: BTreeMap<String, v1::Snapshot>,
}

impl<'a> Verdict<'a> {
    pub(crate) fn new(
        daemon: &'a Daemon,
        cut: &Cut,
        aftermath: &'a Aftermath<'_>,
        figures: &'a mut Figures,
    ) -> Self {
        let Aftermath { ground, known, free_when_empty, .. } = *aftermath;
        let root = ground.root(&cut.disk);
        let (volumes, snapshots) = Default::default();
        let (client, moment) = (daemon.client(), cut.moment);
        Self { client, root, free_when_empty, moment, known, figures, volumes, snapshots }
    }

    pub(crate) async fn check(mut self, depth: Depth) {
        self.nothing_half_made();
        self.look_around().await;
        self.only_what_was_asked_for();
        let known = self.known;
        for volume in known.iter().flat_map(|each| &each.volumes) {
            self.check_volume(volume);
        }
        for snapshot in known.iter().flat_map(|each| &each.snapshots) {
            self.check_snapshot(snapshot);
        }
        for group in known.iter().flat_map(|each| &each.group_snapshots) {
            self.check_group_snapshot(group).await;
        }
        self.check_volume_groups().await;
        self.use_them(depth).await;
        if depth == Depth::Whole {
            self.empty().await;
        }
    }

    fn told(&self, what: &str, id: &str) -> String {
        format!("{what} {id} after the cut at {:?}", self.moment)
    }

    fn entries(&self, directory: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.root.join(directory)).expect("list the pool");
        let names = entries.map(|entry| entry.expect("list the pool").file_name());
        names.map(|name| name.to_string_lossy().into_owned()).collect()
    }

    fn nothing_half_made(&self) {
        for directory in ["staging", "trash"] {
            let left = self.entries(directory);
            assert!(left.is_empty(), "{directory} holds {left:?} at {:?}", self.moment);
        }
    }

    async fn look_around(&mut self) {
        let listed = self.client.list_volumes().await.expect("list the volumes");
        let by_id = |entry: v1::list_volumes_response::Entry| {
            let id = entry.volume.as_ref().expect("a volume").volume_id.clone();
            (id, entry)
        };
        self.volumes = listed.into_iter().map(by_id).collect();
        let listed = self.client.list_snapshots().await.expect("list the snapshots");
        self.snapshots = listed.into_iter().map(|each| (each.snapshot_id.clone(), each)).collect();
    }

    fn only_what_was_asked_for(&self) {
        for id in self.volumes.keys() {
            let mut all = self.known.iter().flat_map(|known| &known.volumes);
            assert!(all.any(|each| each.life.id == *id), "{}", self.told("unknown volume", id));
        }
        for id in self.snapshots.keys() {
            let mut all = self.known.iter().flat_map(|known| &known.snapshots);
            assert!(all.any(|each| each.life.id == *id), "{}", self.told("unknown snapshot", id));
        }
    }

    /// Those of the possible states that agree with what can be seen from outside.
    fn volume_states<'b>(&self, volume: &'b Volume) -> Vec<&'b VolumeState> {
        let states = volume.life.may_be(self.moment).into_iter().flatten();
        let Some(entry) = self.volumes.get(&volume.life.id) else { return Vec::new() };
        let size = entry.volume.as_ref().expect("a volume").capacity_bytes;
        let status = entry.status.as_ref().expect("a status");
        let attached = status.published_node_ids == [NODE];
        let limit = self.write_iops(&volume.life.id);
        let agrees = |state: &&VolumeState| {
            i64::try_from(state.size) == Ok(size)
                && (state.attached, state.write_iops) == (attached, limit)
        };
        states.filter(agrees).collect()
    }

    /// No call tells them.
    fn write_iops(&self, id: &str) -> Option<u64> {
        let record = self.root.join("volumes").join(id).join("record.json");
        let text = std::fs::read(record).expect("read a record");
        let record: serde_json::Value = serde_json::from_slice(&text).expect("a record");
        record["limits"]["write_iops"].as_u64()
    }

    fn check_volume(&mut self, volume: &Volume) {
        let id = &volume.life.id;
        let possible = volume.life.may_be(self.moment);
        let Some(entry) = self.volumes.get(id) else {
            assert!(possible.contains(&None), "{}: {possible:?}", self.told("lost volume", id));
            return;
        };
        let states = self.volume_states(volume);
        let told = format!("{}: {entry:?}, but {possible:?}", self.told("volume", id));
        assert!(!states.is_empty(), "{told}");
        let condition = entry.status.as_ref().and_then(|status| status.volume_condition.as_ref());
        assert!(condition.is_some_and(|condition| !condition.abnormal), "{told}");
        if volume.node.capability.is_block() {
            let data = self.root.join("volumes").join(id).join("data");
            assert!(states.iter().any(|state| holds(&data, &state.contents)), "data of {told}");
        }
        self.figures.compared += 1;
    }

    fn check_snapshot(&mut self, snapshot: &Snapshot) {
        let id = &snapshot.life.id;
        let possible = snapshot.life.may_be(self.moment);
        let Some(found) = self.snapshots.get(id) else {
            assert!(possible.contains(&None), "{}: {possible:?}", self.told("lost snapshot", id));
            return;
        };
        let states: Vec<_> = possible.iter().copied().flatten().collect();
        let told = format!("{}: {found:?}, but {possible:?}", self.told("snapshot", id));
        let agrees = |state: &&SnapshotState| i64::try_from(state.size) == Ok(found.size_bytes);
        assert!(states.iter().any(agrees), "{told}");
        assert!(found.ready_to_use, "{told}");
        if snapshot.capability.is_block() {
            let data = self.root.join("snapshots").join(id).join("data");
            assert!(states.iter().any(|state| holds(&data, &state.contents)), "data of {told}");
        }
        self.figures.compared += 1;
    }

    /// All of it or nothing of it.
    async fn check_group_snapshot(&self, group: &Life<GroupState>) {
        let possible = group.may_be(self.moment);
        let told = format!("{}: {possible:?}", self.told("group snapshot", &group.id));
        let members: Vec<_> = group.first().members.iter().cloned().collect();
        match self.client.get_group_snapshot(&group.id, &members).await {
            Ok(found) => {
                assert!(possible.contains(&Some(group.first())), "{told}: {found:?}");
                let missing = |id: &&String| !self.snapshots.contains_key(*id);
                assert_eq!(members.iter().find(missing), None, "{told}");
            }
            Err(status) => {
                assert_eq!(status.code(), Code::NotFound, "{told}: {status}");
                assert!(possible.contains(&None), "lost {told}");
                let of_it = |each: &&v1::Snapshot| each.group_snapshot_id == group.id;
                assert_eq!(self.snapshots.values().find(of_it), None, "{told}");
            }
        }
    }

    async fn check_volume_groups(&self) {
        let found = VolumeGroups::of(&self.client).list().await;
        for life in self.known.iter().flat_map(|known| &known.volume_groups) {
            let it = found.iter().find(|group| group.volume_group_id == life.id);
            let state = it.map(|group| GroupState {
                members: group.volumes.iter().map(|each| each.volume_id.clone()).collect(),
            });
            let possible = life.may_be(self.moment);
            let told = self.told("volume group", &life.id);
            assert!(possible.contains(&state.as_ref()), "{told}: {state:?}, but {possible:?}");
        }
    }

    async fn use_them(&mut self, depth: Depth) {
        let moment = self.moment;
        let most = if depth == Depth::Whole { usize::MAX } else { FRESHEST };
        let all = self.known.iter().flat_map(|known| &known.volumes);
        let mut there: Vec<_> =
            all.filter(|volume| self.volumes.contains_key(&volume.life.id)).collect();
        there.sort_by_key(|volume| std::cmp::Reverse(volume.life.touched(moment)));
        for volume in there.into_iter().take(most) {
            self.use_volume(volume).await;
        }
        let all = self.known.iter().flat_map(|known| &known.snapshots);
        let mut there: Vec<_> =
            all.filter(|each| self.snapshots.contains_key(&each.life.id)).collect();
        there.sort_by_key(|snapshot| std::cmp::Reverse(snapshot.life.touched(moment)));
        for snapshot in there.into_iter().take(most) {
            self.use_snapshot(snapshot).await;
        }
    }

    async fn use_volume(&mut self, volume: &Volume) {
        let entry = self.volumes[&volume.life.id].volume.as_ref().expect("a volume");
        let contents: Vec<_> =
            self.volume_states(volume).into_iter().map(|state| &state.contents).collect();
        let told = self.told("used volume", &volume.life.id);
        let node = self.client.on_node(entry, volume.node.capability.clone());
        node.up().await;
        let path = node.data_path();
        assert!(contents.iter().any(|each| holds(&path, each)), "{told}: none of {contents:?}");
        // It can also be written.
        if !node.capability.is_block() {
            Pattern::new(1).write(&node.target.join("after the cut"), SLOT);
        }
        node.down().await;
        self.figures.used += 1;
    }

    /// A snapshot is whole if a volume can be made of it.
    async fn use_snapshot(&mut self, snapshot: &Snapshot) {
        let id = &snapshot.life.id;
        let states = snapshot.life.may_be(self.moment).into_iter().flatten();
        let contents: Vec<_> = states.map(|state| &state.contents).collect();
        let create = self.client.create(&format!("after the cut {id}")).from_snapshot(id);
        let capability = snapshot.capability.clone();
        let restored = create.capability(capability.clone()).done().await;
        let node = self.client.on_node(&restored, capability);
        node.up().await;
        let path = node.data_path();
        let told = self.told("restored snapshot", id);
        assert!(contents.iter().any(|each| holds(&path, each)), "{told}: none of {contents:?}");
        node.down().await;
        self.client.delete(&node.id).await.expect("delete the restored volume");
        self.figures.used += 1;
    }

    /// Everything can be deleted, and then nothing is left, seen or unseen.
    async fn empty(&mut self) {
        let mut groups = VolumeGroups::of(&self.client);
        for group in groups.list().await {
            groups.modify(&group.volume_group_id, &[]).await.expect("empty a group");
            groups.delete(&group.volume_group_id).await.expect("delete a group");
        }
        let mut members: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (id, snapshot) in &self.snapshots {
            members.entry(snapshot.group_snapshot_id.clone()).or_default().push(id.clone());
        }
        for (group, snapshots) in members {
            if !group.is_empty() {
                let deleted = self.client.delete_group_snapshot(&group, &snapshots).await;
                deleted.expect("delete a group snapshot");
                continue;
            }
            for id in snapshots {
                self.client.delete_snapshot(&id).await.expect("delete a snapshot");
            }
        }
        for id in self.volumes.keys() {
            self.client.controller_unpublish(id, NODE).await.expect("unpublish a volume");
            self.client.delete(id).await.expect("delete a volume");
        }
        for directory in ["volumes", "snapshots", "groups", "group-snapshots", "staging", "trash"] {
            let left = self.entries(directory);
            assert!(left.is_empty(), "{directory} holds {left:?}, emptied at {:?}", self.moment);
        }
        self.space_is_back().await;
        self.figures.emptied += 1;
    }

    /// What is still taken is what an empty pool takes.
    async fn space_is_back(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            file::sync_filesystem(&self.root).expect("sync the pool");
            let free = file::space(&self.root).expect("statfs").free;
            if free + SLACK >= self.free_when_empty {
                return;
            }
            let told = format!("{free} of {} bytes are free", self.free_when_empty);
            assert!(Instant::now() < deadline, "{told}, emptied at {:?}", self.moment);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
