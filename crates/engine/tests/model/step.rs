//! What can be asked, out of a small world: few names, so that calls meet each other.

use std::collections::BTreeSet;

use orlop_model::AccessMode;
use proptest::prelude::*;

/// One of a few volumes, snapshots, groups, paths or nodes.
pub(crate) type Name = u8;

pub(crate) const NAMES: Name = 4;
pub(crate) const PATHS: Name = 5;
pub(crate) const NODES: Name = 2;

/// How a volume is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shape {
    Mounted,
    Block,
    /// Mounted at several paths of one node.
    Shared,
    /// Mounted on several nodes, which only read.
    Read,
}

impl Shape {
    pub(crate) fn mode(self) -> AccessMode {
        match self {
            Self::Mounted | Self::Block => AccessMode::SingleNodeWriter,
            Self::Shared => AccessMode::SingleNodeMultiWriter,
            Self::Read => AccessMode::MultiNodeReaderOnly,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SnapshotKey {
    Alone(Name),
    /// Of a group snapshot, by the volume that it is of.
    Member(Name, Name),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    Snapshot(SnapshotKey),
    Volume(Name),
}

/// Bytes; 0 is open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    pub(crate) required: u64,
    pub(crate) limit: u64,
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Create {
        volume: Name,
        shape: Shape,
        range: Option<Range>,
        origin: Option<Origin>,
    },
    Delete {
        volume: Name,
    },
    Expand {
        volume: Name,
        range: Range,
    },
    Limit {
        volume: Name,
        iops: u64,
    },
    Validate {
        volume: Name,
        shape: Shape,
    },
    List {
        after: Option<Name>,
        max: usize,
    },
    Snapshot {
        snapshot: Name,
        volume: Name,
    },
    DeleteSnapshot {
        key: SnapshotKey,
    },
    CreateGroupSnapshot {
        group: Name,
        volumes: BTreeSet<Name>,
    },
    DeleteGroupSnapshot {
        group: Name,
        members: BTreeSet<Name>,
    },
    Gather {
        group: Name,
        volumes: BTreeSet<Name>,
        most: u32,
    },
    Regroup {
        group: Name,
        volumes: BTreeSet<Name>,
    },
    Disband {
        group: Name,
    },
    Attach {
        volume: Name,
        node: Name,
        shape: Shape,
        read_only: bool,
    },
    Detach {
        volume: Name,
        node: Option<Name>,
    },
    Stage {
        volume: Name,
        shape: Shape,
        path: Name,
    },
    Unstage {
        volume: Name,
        path: Name,
    },
    Publish {
        volume: Name,
        shape: Shape,
        staging: Name,
        target: Name,
        read_only: bool,
    },
    Unpublish {
        volume: Name,
        target: Name,
    },
    Stats {
        volume: Name,
        path: Name,
    },
    /// What a workload does.
    Write {
        volume: Name,
        what: u8,
    },
    Restart,
    Reboot,
}

fn name() -> impl Strategy<Value = Name> + Clone {
    0..NAMES
}

fn path() -> impl Strategy<Value = Name> + Clone {
    0..PATHS
}

fn shape() -> impl Strategy<Value = Shape> + Clone {
    prop_oneof![
        4 => Just(Shape::Mounted),
        2 => Just(Shape::Block),
        2 => Just(Shape::Shared),
        1 => Just(Shape::Read),
    ]
}

fn snapshot_key() -> impl Strategy<Value = SnapshotKey> + Clone {
    prop_oneof![
        3 => name().prop_map(SnapshotKey::Alone),
        1 => (name(), name()).prop_map(|(group, volume)| SnapshotKey::Member(group, volume)),
    ]
}

/// Sizes on both sides of what a filesystem needs, of what the pool has, and of whole mebibytes.
fn range() -> impl Strategy<Value = Range> + Clone {
    const MIB: u64 = 1 << 20;
    let bytes = prop_oneof![
        Just(0),
        Just(MIB - 1),
        Just(16 * MIB),
        Just(400 * MIB),
        Just(1024 * MIB),
        Just(1024 * MIB + 1),
        Just(3000 * MIB),
        Just(9000 * MIB),
    ];
    (bytes.clone(), bytes)
        .prop_filter("legal on the wire", |(required, limit)| {
            (*required, *limit) != (0, 0) && (*limit == 0 || limit >= required)
        })
        .prop_map(|(required, limit)| Range { required, limit })
}

fn volumes() -> impl Strategy<Value = BTreeSet<Name>> + Clone {
    prop::collection::btree_set(name(), 1..3)
}

fn origin() -> impl Strategy<Value = Origin> + Clone {
    prop_oneof![snapshot_key().prop_map(Origin::Snapshot), name().prop_map(Origin::Volume)]
}

/// Most begin with some volumes, or little would happen.
pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let first = prop::collection::btree_map(name(), shape(), 0..=usize::from(NAMES));
    (first, prop::collection::vec(step(), 1..60)).prop_map(|(first, rest)| {
        let create = |(volume, shape)| Step::Create { volume, shape, range: None, origin: None };
        first.into_iter().map(create).chain(rest).collect()
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => on_volumes(),
        2 => on_copies(),
        1 => on_groups(),
        5 => on_nodes(),
        1 => prop_oneof![4 => Just(Step::Restart), 1 => Just(Step::Reboot)],
    ]
}

fn on_volumes() -> impl Strategy<Value = Step> {
    let plain = (name(), shape(), prop::option::of(range()));
    prop_oneof![
        4 => plain.prop_map(|(volume, shape, range)| Step::Create {
            volume, shape, range, origin: None
        }),
        2 => name().prop_map(|volume| Step::Delete { volume }),
        1 => (name(), range()).prop_map(|(volume, range)| Step::Expand { volume, range }),
        1 => (name(), 0..3_u64).prop_map(|(volume, iops)| Step::Limit { volume, iops }),
        1 => (name(), shape()).prop_map(|(volume, shape)| Step::Validate { volume, shape }),
        1 => (prop::option::of(name()), 0..4_usize)
            .prop_map(|(after, max)| Step::List { after, max }),
    ]
}

fn on_copies() -> impl Strategy<Value = Step> {
    let copy = (name(), shape(), prop::option::weighted(0.3, range()), origin());
    prop_oneof![
        3 => (name(), name()).prop_map(|(snapshot, volume)| Step::Snapshot { snapshot, volume }),
        1 => snapshot_key().prop_map(|key| Step::DeleteSnapshot { key }),
        3 => copy.prop_map(|(volume, shape, range, origin)| Step::Create {
            volume, shape, range, origin: Some(origin)
        }),
        1 => (name(), volumes()).prop_map(|(group, volumes)| Step::CreateGroupSnapshot { group, volumes }),
        1 => (name(), volumes())
            .prop_map(|(group, members)| Step::DeleteGroupSnapshot { group, members }),
    ]
}

fn on_groups() -> impl Strategy<Value = Step> {
    let any = || prop::collection::btree_set(name(), 0..4);
    prop_oneof![
        (name(), any(), 1..3_u32).prop_map(|(group, volumes, most)| Step::Gather {
            group,
            volumes,
            most
        }),
        (name(), any()).prop_map(|(group, volumes)| Step::Regroup { group, volumes }),
        name().prop_map(|group| Step::Disband { group }),
    ]
}

fn on_nodes() -> impl Strategy<Value = Step> {
    let published = (name(), shape(), path(), path(), any::<bool>());
    prop_oneof![
        4 => (name(), 0..NODES, shape(), any::<bool>()).prop_map(
            |(volume, node, shape, read_only)| Step::Attach { volume, node, shape, read_only }
        ),
        2 => (name(), prop::option::of(0..NODES))
            .prop_map(|(volume, node)| Step::Detach { volume, node }),
        5 => (name(), shape(), path())
            .prop_map(|(volume, shape, path)| Step::Stage { volume, shape, path }),
        2 => (name(), path()).prop_map(|(volume, path)| Step::Unstage { volume, path }),
        6 => published
            // The edge refuses paths that overlap.
            .prop_filter("a target of its own", |(_, _, staging, target, _)| staging != target)
            .prop_map(|(volume, shape, staging, target, read_only)| Step::Publish {
                volume, shape, staging, target, read_only
            }),
        2 => (name(), path()).prop_map(|(volume, target)| Step::Unpublish { volume, target }),
        1 => (name(), path()).prop_map(|(volume, path)| Step::Stats { volume, path }),
        2 => (name(), any::<u8>()).prop_map(|(volume, what)| Step::Write { volume, what }),
    ]
}
