//! Does a copy of the disk hold what was answered, whole, and nothing else?

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use orlop_sys::{file, tool};
use orlop_tests::{
    Client, Code, Daemon, MIB, OnNode, Pattern, VolumeCapabilityExt, VolumeGroups, v1,
};

use crate::expected_state::{ExpectedState, SLOT, Snapshot, Volume, holds};
use crate::history::{CutWindow, GroupState, History, SnapshotState, VolumeState};
use crate::round::{Cut, Figures, NODE, PowerRestored};

/// How many are staged and read if not all are: those that were touched last, which a cut would
/// take first.
const FRESHEST: usize = 2;
/// For space that is freed in the background.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Metadata of the pool's filesystem that stays when files are gone.
const SLACK: u64 = 16 * MIB;
const KERNEL_LINES: usize = 40;

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
    window: CutWindow,
    expected: &'a [ExpectedState],
    figures: &'a mut Figures,
    volumes: BTreeMap<String, v1::list_volumes_response::Entry>,
    snapshots: BTreeMap<String, v1::Snapshot>,
}

impl<'a> Verdict<'a> {
    pub(crate) fn new(
        daemon: &'a Daemon,
        cut: &Cut,
        restored: &'a PowerRestored<'_>,
        figures: &'a mut Figures,
    ) -> Self {
        let PowerRestored { kind, expected, free_when_empty, .. } = *restored;
        let root = kind.root(&cut.disk);
        let (volumes, snapshots) = Default::default();
        let (client, window) = (daemon.client(), cut.window);
        Self { client, root, free_when_empty, window, expected, figures, volumes, snapshots }
    }

    pub(crate) async fn check(mut self, depth: Depth) {
        self.nothing_half_made();
        self.look_around().await;
        self.only_what_was_asked_for();
        let expected = self.expected;
        for volume in expected.iter().flat_map(|each| &each.volumes) {
            self.check_volume(volume);
        }
        for snapshot in expected.iter().flat_map(|each| &each.snapshots) {
            self.check_snapshot(snapshot);
        }
        for group in expected.iter().flat_map(|each| &each.group_snapshots) {
            self.check_group_snapshot(group).await;
        }
        self.check_volume_groups().await;
        self.use_them(depth).await;
        if depth == Depth::Whole {
            self.empty().await;
        }
    }

    fn context(&self, what: &str, id: &str) -> String {
        format!("{what} {id} after the cut at {:?}", self.window)
    }

    fn entries(&self, directory: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.root.join(directory)).expect("list the pool");
        let names = entries.map(|entry| entry.expect("list the pool").file_name());
        names.map(|name| name.to_string_lossy().into_owned()).collect()
    }

    fn nothing_half_made(&self) {
        for directory in ["staging", "trash"] {
            let left = self.entries(directory);
            assert!(left.is_empty(), "{directory} holds {left:?} at {:?}", self.window);
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
            let mut all = self.expected.iter().flat_map(|expected| &expected.volumes);
            assert!(
                all.any(|each| each.history.id == *id),
                "{}",
                self.context("unknown volume", id)
            );
        }
        for id in self.snapshots.keys() {
            let mut all = self.expected.iter().flat_map(|expected| &expected.snapshots);
            assert!(
                all.any(|each| each.history.id == *id),
                "{}",
                self.context("unknown snapshot", id)
            );
        }
    }

    /// Those of the possible states that agree with what can be seen from outside.
    fn volume_states<'b>(&self, volume: &'b Volume) -> Vec<&'b VolumeState> {
        let states = volume.history.possible_states(self.window).into_iter().flatten();
        let Some(entry) = self.volumes.get(&volume.history.id) else { return Vec::new() };
        let size = entry.volume.as_ref().expect("a volume").capacity_bytes;
        let status = entry.status.as_ref().expect("a status");
        let attached = status.published_node_ids == [NODE];
        let limit = self.write_iops(&volume.history.id);
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
        let id = &volume.history.id;
        let possible = volume.history.possible_states(self.window);
        let Some(entry) = self.volumes.get(id) else {
            assert!(possible.contains(&None), "{}: {possible:?}", self.context("lost volume", id));
            return;
        };
        let states = self.volume_states(volume);
        let context = format!("{}: {entry:?}, but {possible:?}", self.context("volume", id));
        assert!(!states.is_empty(), "{context}");
        let condition = entry.status.as_ref().and_then(|status| status.volume_condition.as_ref());
        assert!(condition.is_some_and(|condition| !condition.abnormal), "{context}");
        if volume.node.capability.is_block() {
            let data = self.root.join("volumes").join(id).join("data");
            assert!(states.iter().any(|state| holds(&data, &state.contents)), "data of {context}");
        }
        self.figures.compared += 1;
    }

    fn check_snapshot(&mut self, snapshot: &Snapshot) {
        let id = &snapshot.history.id;
        let possible = snapshot.history.possible_states(self.window);
        let Some(found) = self.snapshots.get(id) else {
            assert!(
                possible.contains(&None),
                "{}: {possible:?}",
                self.context("lost snapshot", id)
            );
            return;
        };
        let states: Vec<_> = possible.iter().copied().flatten().collect();
        let context = format!("{}: {found:?}, but {possible:?}", self.context("snapshot", id));
        let agrees = |state: &&SnapshotState| i64::try_from(state.size) == Ok(found.size_bytes);
        assert!(states.iter().any(agrees), "{context}");
        assert!(found.ready_to_use, "{context}");
        if snapshot.capability.is_block() {
            let data = self.root.join("snapshots").join(id).join("data");
            assert!(states.iter().any(|state| holds(&data, &state.contents)), "data of {context}");
        }
        self.figures.compared += 1;
    }

    /// All of it or nothing of it.
    async fn check_group_snapshot(&self, group: &History<GroupState>) {
        let possible = group.possible_states(self.window);
        let context = format!("{}: {possible:?}", self.context("group snapshot", &group.id));
        let members: Vec<_> = group.first().members.iter().cloned().collect();
        match self.client.get_group_snapshot(&group.id, &members).await {
            Ok(found) => {
                assert!(possible.contains(&Some(group.first())), "{context}: {found:?}");
                let missing = |id: &&String| !self.snapshots.contains_key(*id);
                assert_eq!(members.iter().find(missing), None, "{context}");
            }
            Err(status) => {
                assert_eq!(status.code(), Code::NotFound, "{context}: {status}");
                assert!(possible.contains(&None), "lost {context}");
                let of_it = |each: &&v1::Snapshot| each.group_snapshot_id == group.id;
                assert_eq!(self.snapshots.values().find(of_it), None, "{context}");
            }
        }
    }

    async fn check_volume_groups(&self) {
        let found = VolumeGroups::of(&self.client).list().await;
        for history in self.expected.iter().flat_map(|expected| &expected.volume_groups) {
            let it = found.iter().find(|group| group.volume_group_id == history.id);
            let state = it.map(|group| GroupState {
                members: group.volumes.iter().map(|each| each.volume_id.clone()).collect(),
            });
            let possible = history.possible_states(self.window);
            let context = self.context("volume group", &history.id);
            assert!(possible.contains(&state.as_ref()), "{context}: {state:?}, but {possible:?}");
        }
    }

    async fn use_them(&mut self, depth: Depth) {
        let window = self.window;
        let most = if depth == Depth::Whole { usize::MAX } else { FRESHEST };
        let all = self.expected.iter().flat_map(|expected| &expected.volumes);
        let mut there: Vec<_> =
            all.filter(|volume| self.volumes.contains_key(&volume.history.id)).collect();
        there.sort_by_key(|volume| std::cmp::Reverse(volume.history.last_change(window)));
        for volume in there.into_iter().take(most) {
            self.use_volume(volume).await;
        }
        let all = self.expected.iter().flat_map(|expected| &expected.snapshots);
        let mut there: Vec<_> =
            all.filter(|each| self.snapshots.contains_key(&each.history.id)).collect();
        there.sort_by_key(|snapshot| std::cmp::Reverse(snapshot.history.last_change(window)));
        for snapshot in there.into_iter().take(most) {
            self.use_snapshot(snapshot).await;
        }
    }

    async fn use_volume(&mut self, volume: &Volume) {
        let entry = self.volumes[&volume.history.id].volume.as_ref().expect("a volume");
        let contents: Vec<_> =
            self.volume_states(volume).into_iter().map(|state| &state.contents).collect();
        let context = self.context("used volume", &volume.history.id);
        let node = self.client.on_node(entry, volume.node.capability.clone());
        bring_up(&node, &context).await;
        let path = node.data_path();
        assert!(contents.iter().any(|each| holds(&path, each)), "{context}: none of {contents:?}");
        // It can also be written.
        if !node.capability.is_block() {
            Pattern::new(1).write(&node.target.join("after the cut"), SLOT);
        }
        node.down().await;
        self.figures.used += 1;
    }

    /// A snapshot is whole if a volume can be made of it.
    async fn use_snapshot(&mut self, snapshot: &Snapshot) {
        let id = &snapshot.history.id;
        let states = snapshot.history.possible_states(self.window).into_iter().flatten();
        let contents: Vec<_> = states.map(|state| &state.contents).collect();
        let create = self.client.create(&format!("after the cut {id}")).from_snapshot(id);
        let capability = snapshot.capability.clone();
        let restored = create.capability(capability.clone()).done().await;
        let node = self.client.on_node(&restored, capability);
        let context = self.context("restored snapshot", id);
        bring_up(&node, &context).await;
        let path = node.data_path();
        assert!(contents.iter().any(|each| holds(&path, each)), "{context}: none of {contents:?}");
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
            assert!(left.is_empty(), "{directory} holds {left:?}, emptied at {:?}", self.window);
        }
        self.space_is_back().await;
        self.figures.emptied += 1;
    }

    /// What is still taken is what an empty pool takes.
    async fn space_is_back(&self) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            file::sync_filesystem(&self.root).expect("sync the pool");
            let free = file::space(&self.root).expect("statfs").free;
            if free + SLACK >= self.free_when_empty {
                return;
            }
            let context = format!("{free} of {} bytes are free", self.free_when_empty);
            assert!(Instant::now() < deadline, "{context}, emptied at {:?}", self.window);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// What the kernel found wrong with a filesystem, only its log tells.
async fn bring_up(node: &OnNode, context: &str) {
    if let Err(status) = node.stage().await {
        let log = tool::run("dmesg", [""; 0]).map(|output| output.stdout).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<_> = log.lines().rev().take(KERNEL_LINES).collect();
        panic!("{context}: {status}\n--- the kernel's log, the latest first\n{}", lines.join("\n"));
    }
    node.publish().await.unwrap_or_else(|status| panic!("{context}: {status}"));
}
