//! All that one caller knows from the answers that it got.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;

use orlop_tests::{OnNode, Pattern, v1};

use crate::history::{Contents, GroupState, History, SnapshotState, VolumeState};

pub(crate) const SLOTS: u64 = 12;
pub(crate) const SLOT: u64 = 4096;

pub(crate) struct Volume {
    pub(crate) history: History<VolumeState>,
    pub(crate) node: OnNode,
    /// Staged and published.
    pub(crate) is_up: bool,
    pub(crate) in_group: bool,
}

pub(crate) struct Snapshot {
    pub(crate) history: History<SnapshotState>,
    /// What its source was made for.
    pub(crate) capability: v1::VolumeCapability,
    /// Lives and dies with a group snapshot.
    pub(crate) in_group: bool,
}

#[derive(Default)]
pub(crate) struct ExpectedState {
    pub(crate) volumes: Vec<Volume>,
    pub(crate) snapshots: Vec<Snapshot>,
    pub(crate) group_snapshots: Vec<History<GroupState>>,
    pub(crate) volume_groups: Vec<History<GroupState>>,
}

impl Volume {
    /// Of one that is there.
    pub(crate) fn state(&self) -> VolumeState {
        self.history.now().expect("a volume that is there").clone()
    }
}

/// Is in each slot what was written to it last, and nothing where nothing was?
pub(crate) fn holds(path: &Path, contents: &Contents) -> bool {
    let file = match File::open(path) {
        Ok(file) => Some(file),
        // Never written.
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => panic!("open {}: {error}", path.display()),
    };
    let length = usize::try_from(SLOT).expect("a small number");
    (0..SLOTS).all(|slot| {
        let mut found = vec![0; length];
        let mut filled = 0;
        while let Some(file) = &file
            && filled < length
        {
            let at = slot * SLOT + u64::try_from(filled).expect("a small number");
            match file.read_at(&mut found[filled..], at) {
                Ok(0) => break,
                Ok(more) => filled += more,
                Err(error) => panic!("read {}: {error}", path.display()),
            }
        }
        match contents.get(&slot) {
            Some(stamp) => found == Pattern::new(*stamp).bytes(slot * SLOT, length),
            None => found.iter().all(|byte| *byte == 0),
        }
    })
}
