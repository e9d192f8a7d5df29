//! The steps of a caller that are about single volumes.

use std::fs::File;
use std::path::Path;

use orlop_tests::{Create, MIB, Pattern, block, int, mount, v1};

use crate::caller::{Caller, answered};
use crate::expected_state::{SLOT, SLOTS, Volume};
use crate::history::{Contents, History, VolumeState};
use crate::round::NODE;

const GROWTH: u64 = 16 * MIB;
const MAX_WRITES: u64 = 4;

/// Half of them raw, which are checked without a mount.
fn uses() -> [(v1::VolumeCapability, u64); 6] {
    [
        (block(), 16 * MIB),
        (block(), 24 * MIB),
        (block(), 32 * MIB),
        (mount("ext4"), 32 * MIB),
        (mount("xfs"), 320 * MIB),
        (mount("btrfs"), 256 * MIB),
    ]
}

impl Caller {
    pub(crate) async fn create(&mut self) -> bool {
        let (capability, size) = self.rng.choice(&uses()).expect("a non-empty list").clone();
        let name = self.new_name("volume");
        let mut create = self.client.create(&name).size(size).capability(capability);
        if self.rng.u64(..4) == 0 && self.makes_thick {
            create = create.thick();
        }
        self.make(create, Contents::new()).await
    }

    /// From a snapshot, or from a member of a group snapshot.
    pub(crate) async fn restore(&mut self) -> bool {
        let Some(at) = self.any_snapshot(|_| true) else { return false };
        let name = self.new_name("restored");
        let snapshot = &self.expected.snapshots[at];
        let state = snapshot.history.now().expect("a snapshot that is there").clone();
        let create = self.client.create(&name).size(state.size);
        let create = create.capability(snapshot.capability.clone());
        self.make(create.from_snapshot(&snapshot.history.id), state.contents).await
    }

    pub(crate) async fn copy(&mut self) -> bool {
        let Some(at) = self.any_volume(|_| true) else { return false };
        let name = self.new_name("clone");
        let (source, state) = (&self.expected.volumes[at], self.expected.volumes[at].state());
        let create = self.client.create(&name).size(state.size);
        let create = create.capability(source.node.capability.clone());
        self.make(create.from_volume(&source.history.id), state.contents).await
    }

    async fn make(&mut self, create: Create, contents: Contents) -> bool {
        let begun = self.clock.now();
        let volume = answered(&create.request.name, || create.clone().send()).await;
        let ended = self.clock.now();
        let size = u64::try_from(volume.capacity_bytes).expect("a size");
        let state = VolumeState { size, contents, attached: false, write_iops: None };
        let mut history = History::new(volume.volume_id.clone());
        history.record(begun, ended, Some(state));
        let capability = create.request.volume_capabilities[0].clone();
        let node = self.client.on_node(&volume, capability);
        self.expected.volumes.push(Volume { history, node, is_up: false, in_group: false });
        true
    }

    pub(crate) async fn up(&mut self) -> bool {
        let Some(at) = self.any_volume(|volume| !volume.is_up) else { return false };
        let begun = self.clock.now();
        let node = self.expected.volumes[at].node.clone();
        answered("stage", || node.stage()).await;
        answered("publish", || node.publish()).await;
        self.expected.volumes[at].is_up = true;
        self.last_change(at, begun);
        true
    }

    pub(crate) async fn down(&mut self) -> bool {
        let Some(at) = self.any_volume(|volume| volume.is_up) else { return false };
        let begun = self.clock.now();
        let node = self.expected.volumes[at].node.clone();
        answered("unpublish", || node.unpublish()).await;
        answered("unstage", || node.unstage()).await;
        self.expected.volumes[at].is_up = false;
        self.last_change(at, begun);
        true
    }

    /// Each write is on stable storage before the next one begins.
    pub(crate) async fn write(&mut self) -> bool {
        let Some(at) = self.any_volume(|volume| volume.is_up) else { return false };
        let path = self.expected.volumes[at].node.data_path();
        if !path.exists() {
            make_durable_file(&path);
        }
        for _ in 0..=self.rng.u64(..MAX_WRITES) {
            let (slot, mut state) = (self.rng.u64(..SLOTS), self.expected.volumes[at].state());
            let begun = self.clock.now();
            let write = || Pattern::new(begun).write_at(&path, slot * SLOT, SLOT);
            tokio::task::block_in_place(write);
            state.contents.insert(slot, begun);
            let ended = self.clock.now();
            self.expected.volumes[at].history.record(begun, ended, Some(state));
        }
        true
    }

    pub(crate) async fn expand(&mut self) -> bool {
        let Some(at) = self.any_volume(|_| true) else { return false };
        let (id, node) = (self.id_of(at), self.expected.volumes[at].node.clone());
        let mut state = self.expected.volumes[at].state();
        state.size += GROWTH;
        let (size, client) = (state.size, self.client.clone());
        let begun = self.clock.now();
        let answer = answered("expand", || client.expand(&id, size)).await;
        assert_eq!(answer.capacity_bytes, int(size));
        self.changed(at, begun, Some(state));
        // A mounted ext4 grows only for the privileged; this one will when it is staged next.
        if self.expected.volumes[at].is_up && node.capability != mount("ext4") {
            answered("expand on the node", || node.expand(size)).await;
        }
        true
    }

    pub(crate) async fn modify(&mut self) -> bool {
        let Some(at) = self.any_volume(|_| true) else { return false };
        let mut state = self.expected.volumes[at].state();
        // Too high to slow any writer.
        let limit = 1_000_000 + self.rng.u64(..1_000_000);
        state.write_iops = Some(limit);
        let (id, client, limit) = (self.id_of(at), self.client.clone(), limit.to_string());
        let change = [("writeIops", limit.as_str())];
        let begun = self.clock.now();
        answered("modify", || client.modify(&id, &change)).await;
        self.changed(at, begun, Some(state));
        true
    }

    pub(crate) async fn attach(&mut self) -> bool {
        let Some(at) = self.any_volume(|volume| !volume.state().attached) else { return false };
        let (id, client) = (self.id_of(at), self.client.clone());
        let capability = self.expected.volumes[at].node.capability.clone();
        let begun = self.clock.now();
        let publish = || client.controller_publish(&id, NODE, capability.clone(), false);
        answered("controller publish", publish).await;
        let state = VolumeState { attached: true, ..self.expected.volumes[at].state() };
        self.changed(at, begun, Some(state));
        true
    }

    pub(crate) async fn detach(&mut self) -> bool {
        let fits = |volume: &Volume| volume.state().attached && !volume.is_up;
        let Some(at) = self.any_volume(fits) else { return false };
        let (id, client) = (self.id_of(at), self.client.clone());
        let begun = self.clock.now();
        answered("controller unpublish", || client.controller_unpublish(&id, NODE)).await;
        let state = VolumeState { attached: false, ..self.expected.volumes[at].state() };
        self.changed(at, begun, Some(state));
        true
    }

    pub(crate) async fn delete(&mut self) -> bool {
        let fits = |volume: &Volume| !volume.is_up && !volume.in_group && !volume.state().attached;
        let Some(at) = self.any_volume(fits) else { return false };
        let (id, client) = (self.id_of(at), self.client.clone());
        let begun = self.clock.now();
        answered("delete", || client.delete(&id)).await;
        self.changed(at, begun, None);
        true
    }

    pub(crate) fn id_of(&self, at: usize) -> String {
        self.expected.volumes[at].history.id.clone()
    }

    fn last_change(&mut self, at: usize, begun: u64) {
        let state = self.expected.volumes[at].state();
        self.changed(at, begun, Some(state));
    }

    fn changed(&mut self, at: usize, begun: u64, after: Option<VolumeState>) {
        let ended = self.clock.now();
        self.expected.volumes[at].history.record(begun, ended, after);
    }
}

fn make_durable_file(path: &Path) {
    let file = File::create_new(path).expect("make a file in the volume");
    file.sync_all().expect("sync the file");
    let directory = path.parent().expect("a directory");
    orlop_sys::file::sync_dir(directory).expect("sync its directory");
}
