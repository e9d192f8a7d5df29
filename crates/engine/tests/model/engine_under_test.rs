//! The engine, asked the same as the reference and described in the same terms.

use std::collections::{BTreeMap, BTreeSet};

use orlop_engine::EngineSettings;
use orlop_engine::request::{
    ControllerPublish, CreateGroupSnapshot, CreateVolume, CreateVolumeGroup, PublishVolume,
    PublishWay, SnapshotFilter, StageVolume, Validate, VolumeContext,
};
use orlop_host::MemoryHost;
use orlop_model::{
    CapacityRange, ContentSource, DeviceAccess, DeviceSignature, Error, FormatState,
    GroupSnapshotId, HostRecords, NameDigest, NodeId, Pool, Result, SnapshotId, TargetPath,
    Topology, VolumeCapability, VolumeGroupId, VolumeId,
};

use crate::fixture::{self, Fixture};
use crate::reference::volume_name;
use crate::reference::{Answer, Content, MAX_VOLUMES, OnNode, POOL, Snapshot, State, Volume};
use crate::step::{NAMES, NODES, Name, Origin, PATHS, Range, Shape, SnapshotKey, Step};

pub(crate) struct EngineUnderTest {
    fixture: Fixture,
    /// By name. Digests take most of the time where they are computed again and again.
    volumes: Vec<VolumeId>,
    snapshots: BTreeMap<SnapshotKey, SnapshotId>,
}

impl EngineUnderTest {
    pub(crate) fn new() -> Self {
        let pools = vec![fixture::pool("default", &Topology::default(), POOL)];
        let settings = EngineSettings { max_volumes: MAX_VOLUMES, ..fixture::settings() };
        let fixture = Fixture::assembled(pools, MemoryHost::default(), settings);
        let id = |name| {
            VolumeId::new(fixture.pool().id().clone(), NameDigest::of_text(&volume_name(name)))
        };
        let volumes: Vec<VolumeId> = (0..NAMES).map(id).collect();
        let members =
            (0..NAMES).flat_map(|group| (0..NAMES).map(move |of| SnapshotKey::Member(group, of)));
        let snapshots = (0..NAMES).map(SnapshotKey::Alone).chain(members).map(|key| {
            let digest = digest_of(key, &volumes);
            (key, SnapshotId::new(fixture.pool().id().clone(), digest))
        });
        let snapshots = snapshots.collect();
        Self { fixture, volumes, snapshots }
    }

    pub(crate) fn follow(&mut self, step: &Step) -> Answer {
        match step {
            Step::Restart => self.fixture.restart(),
            Step::Reboot => {
                self.fixture.pool().reboot();
                self.fixture.host.reboot();
                self.fixture.restart();
            }
            Step::Write { volume, what } if self.stage_of(*volume).is_some() => {
                let written =
                    self.fixture.pool().write_tag(&self.volume(*volume), &what.to_string());
                written.expect("a staged volume exists");
            }
            _ => {}
        }
        let outcome = self.ask(step).map_err(|error| kind(&error));
        outcome.unwrap_or_else(Answer::Refused)
    }

    fn ask(&self, step: &Step) -> Result<Answer> {
        let engine = &self.fixture.engine;
        let done = |()| Answer::Done;
        match step {
            Step::Create { volume, shape, range, origin } => {
                self.create(*volume, *shape, *range, *origin)
            }
            Step::Delete { volume } => engine.delete_volume(&self.volume(*volume)).map(done),
            Step::Expand { volume, range } => {
                let range = range_of(*range);
                let grown = engine.expand_volume(&self.volume(*volume), &range, None)?;
                Ok(Answer::Size(grown.capacity_bytes))
            }
            Step::Limit { volume, iops } => {
                let change = fixture::limits(&[("readIops", &iops.to_string())]);
                engine.modify_volume(&self.volume(*volume), &change).map(done)
            }
            Step::Validate { volume, shape } => {
                let verdict = engine.validate(&Validate {
                    volume: self.volume(*volume),
                    capabilities: fixture::only(capability(*shape)),
                    context: VolumeContext::new(),
                    parameters: None,
                })?;
                Ok(Answer::Verdict(verdict.is_ok()))
            }
            Step::List { after, max } => {
                let after = after.map(|name| self.volume(name));
                let page = engine.list_volumes(after.as_ref(), *max)?;
                let names = page.entries.iter().map(|entry| self.name_of(&entry.id)).collect();
                Ok(Answer::Listed(names, page.next.is_some()))
            }
            Step::Snapshot { snapshot, volume } => {
                let request = fixture::snapshot(&format!("s{snapshot}"), &self.volume(*volume));
                Ok(Answer::Size(engine.create_snapshot(&request)?.size_bytes))
            }
            Step::DeleteSnapshot { key } => {
                engine.delete_snapshot(&self.snapshot_id(*key)).map(done)
            }
            Step::CreateGroupSnapshot { .. }
            | Step::DeleteGroupSnapshot { .. }
            | Step::Gather { .. }
            | Step::Regroup { .. }
            | Step::Disband { .. } => self.ask_about_groups(step),
            Step::Attach { .. }
            | Step::Detach { .. }
            | Step::Stage { .. }
            | Step::Unstage { .. }
            | Step::Publish { .. }
            | Step::Unpublish { .. }
            | Step::Stats { .. } => self.ask_node(step),
            Step::Write { .. } | Step::Restart | Step::Reboot => Ok(Answer::Done),
        }
    }

    fn create(
        &self,
        name: Name,
        shape: Shape,
        range: Option<Range>,
        origin: Option<Origin>,
    ) -> Result<Answer> {
        let source = origin.map(|origin| match origin {
            Origin::Volume(name) => ContentSource::Volume(self.volume(name)),
            Origin::Snapshot(key) => ContentSource::Snapshot(self.snapshot_id(key)),
        });
        let request = CreateVolume {
            range: range.map(range_of),
            capabilities: fixture::only(capability(shape)),
            source,
            ..fixture::volume(&volume_name(name))
        };
        let is_new = self.fixture.pool().catalogue().volume(&self.volume(name))?.is_none();
        let made = self.fixture.engine.create_volume(&request)?.record;
        if is_new {
            self.copy_superblock(&made.id, made.format);
        }
        Ok(Answer::Size(made.capacity_bytes))
    }

    /// The machine in memory knows what is on a device by its number, and nothing of copies.
    fn copy_superblock(&self, id: &VolumeId, format: FormatState) {
        let (FormatState::Formatted { fs, uuid } | FormatState::Copied { fs, uuid }) = format
        else {
            return;
        };
        let pool = self.fixture.pool();
        let device =
            pool.devices().ensure_attached(id, DeviceAccess::ReadWrite).expect("it was just made");
        let signature = DeviceSignature::Filesystem { fs, uuid, needs_check: false };
        self.fixture.host.set_signature(&device, signature);
        pool.devices().ensure_detached(id, DeviceAccess::ReadWrite).expect("it was just attached");
    }

    fn ask_about_groups(&self, step: &Step) -> Result<Answer> {
        let engine = &self.fixture.engine;
        let done = |()| Answer::Done;
        let ids = |names: &BTreeSet<Name>| names.iter().map(|name| self.volume(*name)).collect();
        match step {
            Step::CreateGroupSnapshot { group, volumes } => {
                let name = format!("g{group}").parse().expect("a legal name");
                let request = CreateGroupSnapshot { name, sources: ids(volumes) };
                let made = engine.create_group_snapshot(&request)?;
                let members = made.members.iter().map(|member| self.name_of(&member.source));
                Ok(Answer::Members(members.collect()))
            }
            Step::DeleteGroupSnapshot { group, members } => {
                let members = members
                    .iter()
                    .map(|volume| self.snapshot_id(SnapshotKey::Member(*group, *volume)));
                let members = members.map(|id| id.to_string()).collect();
                engine.delete_group_snapshot(&self.group_snapshot_id(*group), &members).map(done)
            }
            Step::Gather { group, volumes, most } => {
                let name = format!("vg{group}").parse().expect("a legal name");
                let request = CreateVolumeGroup { name, members: ids(volumes), max_members: *most };
                Ok(self.members(&engine.create_volume_group(&request)?.record.members))
            }
            Step::Regroup { group, volumes } => {
                let now = engine.modify_volume_group(&self.group(*group), &ids(volumes))?;
                Ok(self.members(&now.record.members))
            }
            Step::Disband { group } => engine.delete_volume_group(&self.group(*group)).map(done),
            _ => unreachable!("{step:?} is not about groups"),
        }
    }

    fn ask_node(&self, step: &Step) -> Result<Answer> {
        let engine = &self.fixture.engine;
        let done = |()| Answer::Done;
        match *step {
            Step::Attach { volume, node, shape, read_only } => {
                let request = ControllerPublish {
                    capability: capability(shape),
                    read_only,
                    ..fixture::controller_publish(&self.volume(volume), &node_name(node))
                };
                engine.controller_publish(&request).map(|_| Answer::Done)
            }
            Step::Detach { volume, node } => {
                let node: Option<NodeId> = node.map(|node| fixture::node(&node_name(node)));
                engine.controller_unpublish(&self.volume(volume), node.as_ref()).map(done)
            }
            Step::Stage { volume, shape, path } => {
                let request = StageVolume {
                    capability: capability(shape),
                    path: path_of(path),
                    ..fixture::stage(&self.volume(volume))
                };
                engine.stage_volume(&request).map(done)
            }
            Step::Unstage { volume, path } => {
                let volume = fixture::issued(&self.volume(volume));
                engine.unstage_volume(&volume, &path_of(path)).map(done)
            }
            Step::Publish { volume, shape, staging, target, read_only } => {
                let request = PublishVolume {
                    way: PublishWay::Staged { staging: path_of(staging) },
                    target: path_of(target),
                    capability: capability(shape),
                    read_only,
                    ..fixture::publish(&self.volume(volume), fixture::TARGET)
                };
                engine.publish_volume(&request).map(done)
            }
            Step::Unpublish { volume, target } => {
                let volume = fixture::issued(&self.volume(volume));
                engine.unpublish_volume(&volume, &path_of(target)).map(done)
            }
            Step::Stats { volume, path } => {
                let volume = fixture::issued(&self.volume(volume));
                engine.volume_stats(&volume, &path_of(path)).map(|_| Answer::Done)
            }
            _ => unreachable!("{step:?} is not about a node"),
        }
    }

    pub(crate) fn state(&self) -> State {
        let pool = self.fixture.pool();
        let mut state = State::default();
        for (id, record) in pool.catalogue().volumes(None, 0).unwrap() {
            let record = record.unwrap();
            let attached = record.published.iter().map(|(node, publication)| {
                (name_of_node(node), (shape_of(&publication.capability), publication.read_only))
            });
            let volume = Volume {
                size: record.capacity_bytes,
                shape: shape_of(record.capabilities.iter().next().unwrap()),
                origin: record.source.as_ref().map(|source| self.origin_of(source)),
                content: content_of(record.format),
                data: pool.tag(&id).unwrap(),
                iops: record.limits.read_iops,
                attached: attached.collect(),
            };
            state.volumes.insert(self.name_of(&id), volume);
        }
        let snapshots = self.fixture.engine.list_snapshots(&SnapshotFilter::default(), None, 0);
        for record in snapshots.unwrap().entries {
            let snapshot = Snapshot {
                of: self.name_of(&record.source),
                size: record.size_bytes,
                content: content_of(record.format),
                data: pool.snapshot_tag(&record.id).unwrap(),
            };
            state.snapshots.insert(self.key_of(&record.id), snapshot);
        }
        for group in self.fixture.engine.list_volume_groups(None, 0).unwrap().entries {
            let Answer::Members(members) = self.members(&group.record.members) else { continue };
            let names = (0..NAMES).find(|name| self.group(*name) == group.record.id);
            state.groups.insert(names.unwrap(), (members, group.record.max_members));
        }
        state.mounts = self.fixture.host.mounts().iter().map(name_of_path).collect();
        for id in self.fixture.host.node_records().unwrap() {
            state.here.insert(self.name_of(&id), self.on_node(&id));
        }
        state
    }

    fn on_node(&self, id: &VolumeId) -> OnNode {
        let record = self.fixture.node_record(id);
        let stage = record.stage.map(|stage| (name_of_path(&stage.path), stage.read_only));
        let targets = record.publications.iter().map(|publication| {
            let how = (shape_of(&publication.capability), publication.read_only);
            (name_of_path(&publication.target), how)
        });
        OnNode { stage, targets: targets.collect() }
    }

    pub(crate) fn assert_empty(&self) {
        assert_eq!(self.state(), State::default());
        self.fixture.assert_node_is_clean();
    }

    fn stage_of(&self, name: Name) -> Option<(Name, bool)> {
        self.on_node(&self.volume(name)).stage
    }

    fn volume(&self, name: Name) -> VolumeId {
        self.volumes[usize::from(name)].clone()
    }

    fn group_snapshot_id(&self, name: Name) -> GroupSnapshotId {
        let digest = NameDigest::of_text(&format!("g{name}"));
        GroupSnapshotId::new(self.fixture.pool().id().clone(), digest)
    }

    fn group(&self, name: Name) -> VolumeGroupId {
        let digest = NameDigest::of_text(&format!("vg{name}"));
        VolumeGroupId::new(self.fixture.pool().id().clone(), digest)
    }

    fn snapshot_id(&self, key: SnapshotKey) -> SnapshotId {
        self.snapshots[&key].clone()
    }

    fn name_of(&self, id: &VolumeId) -> Name {
        let known = (0..NAMES).zip(&self.volumes).find(|(_, known)| *known == id);
        known.expect("a volume of this world").0
    }

    fn key_of(&self, id: &SnapshotId) -> SnapshotKey {
        let known = self.snapshots.iter().find(|(_, known)| *known == id);
        *known.expect("a snapshot of this world").0
    }

    fn origin_of(&self, source: &ContentSource) -> Origin {
        match source {
            ContentSource::Volume(id) => Origin::Volume(self.name_of(id)),
            ContentSource::Snapshot(id) => Origin::Snapshot(self.key_of(id)),
        }
    }

    fn members(&self, ids: &BTreeSet<VolumeId>) -> Answer {
        Answer::Members(ids.iter().map(|id| self.name_of(id)).collect())
    }
}

fn digest_of(key: SnapshotKey, volumes: &[VolumeId]) -> NameDigest {
    match key {
        SnapshotKey::Alone(name) => NameDigest::of_text(&format!("s{name}")),
        SnapshotKey::Member(group, volume) => {
            let group = format!("g{group}").parse().expect("a legal name");
            NameDigest::of_member(&group, &volumes[usize::from(volume)])
        }
    }
}

fn capability(shape: Shape) -> VolumeCapability {
    match shape {
        Shape::Block => fixture::block(shape.mode()),
        Shape::Mounted | Shape::Shared | Shape::Read => fixture::mount(None, shape.mode()),
    }
}

fn shape_of(capability: &VolumeCapability) -> Shape {
    let all = [Shape::Mounted, Shape::Block, Shape::Shared, Shape::Read];
    let same = |shape: &Shape| {
        (*shape == Shape::Block) == capability.is_block() && shape.mode() == capability.mode
    };
    all.into_iter().find(same).expect("a shape of this world")
}

fn content_of(format: FormatState) -> Content {
    match format {
        FormatState::Blank => Content::Blank,
        FormatState::Raw => Content::Raw,
        FormatState::Formatted { .. } | FormatState::Copied { .. } => Content::Filesystem,
        FormatState::Formatting { .. } | FormatState::Renewing { .. } => {
            panic!("{format:?} outlasts a call")
        }
    }
}

fn range_of(range: Range) -> CapacityRange {
    fixture::range(range.required, range.limit)
}

fn path_of(path: Name) -> TargetPath {
    fixture::path(&format!("/paths/{path}"))
}

fn name_of_path(path: &TargetPath) -> Name {
    (0..PATHS).find(|name| path_of(*name) == *path).expect("a path of this world")
}

fn node_name(node: Name) -> String {
    format!("n{}", node + 1)
}

fn name_of_node(node: &NodeId) -> Name {
    (0..NODES).find(|name| node_name(*name) == node.as_str()).expect("a node of this world")
}

fn kind(error: &Error) -> &'static str {
    match error {
        Error::Invalid { .. } => "invalid",
        Error::NoSuchVolume(_) => "no such volume",
        Error::NoSuchSnapshot(_) => "no such snapshot",
        Error::NoSuchGroupSnapshot(_) => "no such group snapshot",
        Error::NoSuchVolumeGroup(_) => "no such volume group",
        Error::NoSuchNode(_) => "no such node",
        Error::NotServed { .. } => "pool not served",
        Error::NotAtPath { .. } => "not at path",
        Error::Conflict { .. } => "conflict",
        Error::Busy { .. } => "busy",
        Error::StaleToken => "stale token",
        Error::OutOfRange(_) => "out of range",
        Error::Exhausted(_) => "exhausted",
        Error::Precondition(_) => "precondition",
        Error::Unauthenticated(_) => "unauthenticated",
        Error::NotOffered(..) => "not offered",
        Error::Damaged { .. } => "damaged",
        Error::Starting | Error::Stopping | Error::Unreachable { .. } => "away",
        Error::Failed { .. } => "failed",
        Error::NotOnNode(_) => "not on node",
    }
}
