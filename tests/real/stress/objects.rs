//! The eight volumes and three snapshots that all calls are about.

use std::path::PathBuf;

use orlop_tests::*;

/// Where the data of a volume comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Nothing,
    /// The volume of this number.
    Volume(usize),
    /// The snapshot of this number.
    Snapshot(usize),
}

pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) capability: v1::VolumeCapability,
    pub(crate) size: u64,
    pub(crate) origin: Origin,
    /// Ids come from names, so it is known also while the volume does not exist.
    pub(crate) id: String,
    pub(crate) staging: PathBuf,
    pub(crate) targets: [PathBuf; 2],
}

pub(crate) struct SnapshotSubject {
    pub(crate) name: String,
    pub(crate) source: usize,
    pub(crate) id: String,
}

pub(crate) struct Subjects {
    pub(crate) volumes: Vec<Subject>,
    pub(crate) snapshots: Vec<SnapshotSubject>,
}

fn plans() -> Vec<(v1::VolumeCapability, u64, Origin)> {
    let shared = Mode::SingleNodeMultiWriter;
    vec![
        (mount("ext4"), 32 * MIB, Origin::Nothing),
        (mount("ext4").mode(shared), 48 * MIB, Origin::Nothing),
        (block(), 16 * MIB, Origin::Nothing),
        (block().mode(shared), 16 * MIB, Origin::Nothing),
        (mount("xfs"), 320 * MIB, Origin::Nothing),
        (mount("btrfs").mode(shared), 256 * MIB, Origin::Nothing),
        (mount("ext4"), 0, Origin::Volume(0)),
        (mount("btrfs"), 0, Origin::Snapshot(2)),
    ]
}

impl Subjects {
    /// Makes each once to learn its id.
    pub(crate) async fn introduce(client: &Client) -> Self {
        let mut subjects = Self { volumes: Vec::new(), snapshots: Vec::new() };
        for (number, (capability, size, origin)) in plans().into_iter().enumerate() {
            if let Origin::Snapshot(_) = origin {
                subjects.introduce_snapshots(client).await;
            }
            let name = format!("volume {number}");
            let mut subject = Subject {
                staging: client.scratch().ensure_dir(format!("staging/{number}")),
                targets: ["a", "b"].map(|each| client.new_target(&format!("{number}{each}"))),
                name,
                capability,
                size,
                origin,
                id: String::new(),
            };
            subject.id = subjects.create(client, &subject).done().await.volume_id;
            subjects.volumes.push(subject);
        }
        for snapshot in &subjects.snapshots {
            client.delete_snapshot(&snapshot.id).await.unwrap();
        }
        for volume in &subjects.volumes {
            client.delete(&volume.id).await.unwrap();
        }
        subjects
    }

    async fn introduce_snapshots(&mut self, client: &Client) {
        for (number, source) in [0, 3, 5].into_iter().enumerate() {
            let name = format!("snapshot {number}");
            let id = client.snapshot(&name, &self.volumes[source].id).await.unwrap().snapshot_id;
            self.snapshots.push(SnapshotSubject { name, source, id });
        }
    }

    pub(crate) fn create(&self, client: &Client, subject: &Subject) -> Create {
        let create = client.create(&subject.name).capability(subject.capability.clone());
        match subject.origin {
            Origin::Nothing => create.size(subject.size),
            Origin::Volume(number) => create.from_volume(&self.volumes[number].id),
            Origin::Snapshot(number) => create.from_snapshot(&self.snapshots[number].id),
        }
    }
}
