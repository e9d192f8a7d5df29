//! What the engine has to do, in the simplest terms: maps, and no order of effects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use orlop_model::NameDigest;

use crate::step::{NAMES, Name, Origin, Range, Shape, SnapshotKey, Step};

const MIB: u64 = 1 << 20;
pub(crate) const POOL: u64 = 10 << 30;
const USUAL_SIZE: u64 = 1 << 30;
/// Of XFS, which is made where none is named.
const SMALLEST_FILESYSTEM: u64 = 300 * MIB;
pub(crate) const MAX_VOLUMES: u32 = 2;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    Size(u64),
    Verdict(bool),
    /// And whether there are more.
    Listed(Vec<Name>, bool),
    Members(BTreeSet<Name>),
    Refused(&'static str),
}

pub(crate) type Outcome = Result<Answer, &'static str>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Blank,
    Raw,
    Filesystem,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Volume {
    pub(crate) size: u64,
    pub(crate) shape: Shape,
    pub(crate) origin: Option<Origin>,
    pub(crate) content: Content,
    pub(crate) data: String,
    pub(crate) iops: Option<u64>,
    pub(crate) attached: BTreeMap<Name, (Shape, bool)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) of: Name,
    pub(crate) size: u64,
    pub(crate) content: Content,
    pub(crate) data: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OnNode {
    /// The path, and whether for reading only.
    pub(crate) stage: Option<(Name, bool)>,
    pub(crate) targets: BTreeMap<Name, (Shape, bool)>,
}

/// All that can be seen from outside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) volumes: BTreeMap<Name, Volume>,
    pub(crate) snapshots: BTreeMap<SnapshotKey, Snapshot>,
    pub(crate) groups: BTreeMap<Name, (BTreeSet<Name>, u32)>,
    pub(crate) here: BTreeMap<Name, OnNode>,
    /// Which volume is mounted at a path.
    pub(crate) mounts: BTreeSet<Name>,
}

#[derive(Debug, Default)]
pub(crate) struct Reference {
    /// Snapshots of a volume that was deleted since, whether or not there is one of its name again.
    former: BTreeSet<SnapshotKey>,
    pub(crate) state: State,
    pub(crate) mounted: BTreeMap<Name, Name>,
}

/// Ids are in the order of the digests of names.
fn rank(name: Name) -> usize {
    static ORDER: LazyLock<Vec<Name>> = LazyLock::new(|| {
        let mut names: Vec<Name> = (0..NAMES).collect();
        names.sort_by_key(|name| NameDigest::of_text(&volume_name(*name)));
        names
    });
    ORDER.iter().position(|other| *other == name).expect("a name of this world")
}

fn in_order_of_ids(names: impl IntoIterator<Item = Name>) -> Vec<Name> {
    let mut names: Vec<Name> = names.into_iter().collect();
    names.sort_by_key(|name| rank(*name));
    names
}

pub(crate) fn volume_name(name: Name) -> String {
    format!("v{name}")
}

impl Reference {
    pub(crate) fn follow(&mut self, step: &Step) -> Answer {
        self.try_follow(step).unwrap_or_else(Answer::Refused)
    }

    pub(crate) fn state(&self) -> State {
        let mut state = self.state.clone();
        state.here.retain(|_, here| *here != OnNode::default());
        state.mounts = self.mounted.keys().copied().collect();
        state
    }

    fn try_follow(&mut self, step: &Step) -> Outcome {
        match step {
            Step::Create { volume, shape, range, origin } => {
                self.create(*volume, *shape, *range, *origin)
            }
            Step::Delete { volume } => self.delete(*volume),
            Step::Expand { volume, range } => self.expand(*volume, *range),
            Step::Limit { volume, iops } => {
                self.volume(*volume)?.iops = (*iops > 0).then_some(*iops);
                Ok(Answer::Done)
            }
            Step::Validate { volume, shape } => {
                Ok(Answer::Verdict(grants(self.volume(*volume)?.shape, *shape)))
            }
            Step::List { after, max } => Ok(self.list(*after, *max)),
            Step::Snapshot { snapshot, volume } => self.snapshot(*snapshot, *volume),
            Step::DeleteSnapshot { key: SnapshotKey::Alone(name) } => {
                self.state.snapshots.remove(&SnapshotKey::Alone(*name));
                Ok(Answer::Done)
            }
            Step::DeleteSnapshot { key } => match self.state.snapshots.contains_key(key) {
                true => Err("invalid"),
                false => Ok(Answer::Done),
            },
            Step::CreateGroupSnapshot { group, volumes } => {
                self.create_group_snapshot(*group, volumes)
            }
            Step::DeleteGroupSnapshot { group, members } => {
                self.delete_group_snapshot(*group, members)
            }
            Step::Gather { group, volumes, most } => self.gather(*group, volumes, *most),
            Step::Regroup { group, volumes } => self.regroup(*group, volumes),
            Step::Disband { group } => self.disband(*group),
            Step::Attach { .. }
            | Step::Detach { .. }
            | Step::Stage { .. }
            | Step::Unstage { .. }
            | Step::Publish { .. }
            | Step::Unpublish { .. }
            | Step::Stats { .. }
            | Step::Write { .. }
            | Step::Restart
            | Step::Reboot => self.follow_on_node(step),
        }
    }

    pub(crate) fn volume(&mut self, name: Name) -> Result<&mut Volume, &'static str> {
        self.state.volumes.get_mut(&name).ok_or("no such volume")
    }

    fn room(&self) -> u64 {
        POOL - self.state.volumes.values().map(|volume| volume.size).sum::<u64>()
    }

    fn check_room(&self, bytes: u64) -> Result<(), &'static str> {
        match bytes {
            _ if bytes > POOL => Err("out of range"),
            _ if bytes > self.room() => Err("exhausted"),
            _ => Ok(()),
        }
    }

    fn create(
        &mut self,
        name: Name,
        shape: Shape,
        range: Option<Range>,
        origin: Option<Origin>,
    ) -> Outcome {
        if let Some(there) = self.state.volumes.get(&name) {
            let fits = range.is_none_or(|range| {
                there.size >= range.required && (range.limit == 0 || there.size <= range.limit)
            });
            let same = fits && there.shape == shape && there.origin == origin;
            return if same { Ok(Answer::Size(there.size)) } else { Err("conflict") };
        }
        let (least, content, data) = self.copied(origin)?;
        let smallest = if shape == Shape::Block { MIB } else { SMALLEST_FILESYSTEM };
        let floor = least.max(smallest);
        let usual = if origin.is_some() { floor } else { USUAL_SIZE };
        let size = chosen(range, floor, usual)?;
        self.check_room(size)?;
        let attached = BTreeMap::new();
        let made = Volume { size, shape, origin, content, data, iops: None, attached };
        self.state.volumes.insert(name, made);
        Ok(Answer::Size(size))
    }

    fn copied(&mut self, origin: Option<Origin>) -> Result<(u64, Content, String), &'static str> {
        match origin {
            None => Ok((0, Content::Blank, String::new())),
            Some(Origin::Volume(name)) => {
                let source = self.volume(name)?;
                Ok((source.size, source.content, source.data.clone()))
            }
            Some(Origin::Snapshot(key)) => {
                let source = self.state.snapshots.get(&key).ok_or("no such snapshot")?;
                Ok((source.size, source.content, source.data.clone()))
            }
        }
    }

    fn delete(&mut self, name: Name) -> Outcome {
        let Some(volume) = self.state.volumes.get(&name) else { return Ok(Answer::Done) };
        let here = self.state.here.get(&name).cloned().unwrap_or_default();
        if !volume.attached.is_empty() || self.group_of(name).is_some() || here != OnNode::default()
        {
            return Err("precondition");
        }
        self.state.volumes.remove(&name);
        let of_it = self.state.snapshots.iter().filter(|(_, snapshot)| snapshot.of == name);
        self.former.extend(of_it.map(|(key, _)| *key));
        Ok(Answer::Done)
    }

    /// Of an earlier volume than the one that has its name now.
    fn is_outdated(&self, key: SnapshotKey, of: Name) -> bool {
        self.former.contains(&key) && self.state.volumes.contains_key(&of)
    }

    fn expand(&mut self, name: Name, range: Range) -> Outcome {
        let now = self.volume(name)?.size;
        let size = chosen(Some(range), now, now)?;
        self.check_room(size - now)?;
        self.volume(name)?.size = size;
        Ok(Answer::Size(size))
    }

    fn list(&self, after: Option<Name>, max: usize) -> Answer {
        let mut names = in_order_of_ids(self.state.volumes.keys().copied());
        if let Some(after) = after {
            names.retain(|name| rank(*name) > rank(after));
        }
        let more = max > 0 && names.len() > max;
        if more {
            names.truncate(max);
        }
        Answer::Listed(names, more)
    }

    fn snapshot(&mut self, name: Name, of: Name) -> Outcome {
        if let Some(there) = self.state.snapshots.get(&SnapshotKey::Alone(name)) {
            let is_same = there.of == of && !self.is_outdated(SnapshotKey::Alone(name), of);
            return if is_same { Ok(Answer::Size(there.size)) } else { Err("conflict") };
        }
        let made = self.take_snapshot(of)?;
        let size = made.size;
        self.former.remove(&SnapshotKey::Alone(name));
        self.state.snapshots.insert(SnapshotKey::Alone(name), made);
        Ok(Answer::Size(size))
    }

    fn take_snapshot(&mut self, of: Name) -> Result<Snapshot, &'static str> {
        let source = self.volume(of)?;
        Ok(Snapshot { of, size: source.size, content: source.content, data: source.data.clone() })
    }

    fn members_of_group_snapshot(&self, group: Name) -> BTreeSet<Name> {
        let of_group = |key: &SnapshotKey| match key {
            SnapshotKey::Member(of, volume) if *of == group => Some(*volume),
            SnapshotKey::Member(..) | SnapshotKey::Alone(_) => None,
        };
        self.state.snapshots.keys().filter_map(of_group).collect()
    }

    fn create_group_snapshot(&mut self, group: Name, volumes: &BTreeSet<Name>) -> Outcome {
        let there = self.members_of_group_snapshot(group);
        if !there.is_empty() {
            let outdated = |of: &Name| self.is_outdated(SnapshotKey::Member(group, *of), *of);
            let is_same = there == *volumes && !there.iter().any(outdated);
            return if is_same { Ok(Answer::Members(there)) } else { Err("conflict") };
        }
        let taken: Result<Vec<_>, _> =
            volumes.iter().map(|volume| self.take_snapshot(*volume)).collect();
        for snapshot in taken? {
            let key = SnapshotKey::Member(group, snapshot.of);
            self.former.remove(&key);
            self.state.snapshots.insert(key, snapshot);
        }
        Ok(Answer::Members(volumes.clone()))
    }

    fn delete_group_snapshot(&mut self, group: Name, members: &BTreeSet<Name>) -> Outcome {
        let there = self.members_of_group_snapshot(group);
        if there.is_empty() {
            return Ok(Answer::Done);
        }
        if there != *members {
            return Err("invalid");
        }
        for volume in there {
            self.state.snapshots.remove(&SnapshotKey::Member(group, volume));
        }
        Ok(Answer::Done)
    }

    fn group_of(&self, volume: Name) -> Option<Name> {
        let mut groups = self.state.groups.iter();
        groups.find(|(_, (members, _))| members.contains(&volume)).map(|(group, _)| *group)
    }

    fn check_joining(&mut self, group: Name, volumes: &BTreeSet<Name>) -> Result<(), &'static str> {
        for volume in in_order_of_ids(volumes.iter().copied()) {
            self.volume(volume)?;
            if self.group_of(volume).is_some_and(|other| other != group) {
                return Err("precondition");
            }
        }
        Ok(())
    }

    fn gather(&mut self, group: Name, volumes: &BTreeSet<Name>, most: u32) -> Outcome {
        if let Some((members, room)) = self.state.groups.get(&group) {
            return if *room == most {
                Ok(Answer::Members(members.clone()))
            } else {
                Err("conflict")
            };
        }
        self.check_joining(group, volumes)?;
        check_size(volumes, most)?;
        self.state.groups.insert(group, (volumes.clone(), most));
        Ok(Answer::Members(volumes.clone()))
    }

    fn regroup(&mut self, group: Name, volumes: &BTreeSet<Name>) -> Outcome {
        let (_, most) = self.state.groups.get(&group).cloned().ok_or("no such volume group")?;
        self.check_joining(group, volumes)?;
        check_size(volumes, most)?;
        self.state.groups.insert(group, (volumes.clone(), most));
        Ok(Answer::Members(volumes.clone()))
    }

    fn disband(&mut self, group: Name) -> Outcome {
        if self.state.groups.get(&group).is_some_and(|(members, _)| !members.is_empty()) {
            return Err("precondition");
        }
        self.state.groups.remove(&group);
        Ok(Answer::Done)
    }

    /// Steps after which nothing is left.
    pub(crate) fn undoing(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (volume, here) in &self.state.here {
            let unpublish = |target: &Name| Step::Unpublish { volume: *volume, target: *target };
            steps.extend(here.targets.keys().map(unpublish));
            steps.extend(here.stage.map(|(path, _)| Step::Unstage { volume: *volume, path }));
        }
        for group in self.state.groups.keys() {
            steps.push(Step::Regroup { group: *group, volumes: BTreeSet::new() });
            steps.push(Step::Disband { group: *group });
        }
        for key in self.state.snapshots.keys() {
            steps.push(match key {
                SnapshotKey::Alone(_) => Step::DeleteSnapshot { key: *key },
                SnapshotKey::Member(group, _) => Step::DeleteGroupSnapshot {
                    group: *group,
                    members: self.members_of_group_snapshot(*group),
                },
            });
        }
        for volume in self.state.volumes.keys() {
            steps.push(Step::Detach { volume: *volume, node: None });
            steps.push(Step::Delete { volume: *volume });
        }
        steps
    }
}

fn check_size(volumes: &BTreeSet<Name>, most: u32) -> Result<(), &'static str> {
    let fits = u32::try_from(volumes.len()).is_ok_and(|count| count <= most);
    if fits { Ok(()) } else { Err("exhausted") }
}

/// The smallest whole number of mebibytes that does.
fn chosen(range: Option<Range>, floor: u64, usual: u64) -> Result<u64, &'static str> {
    let range = range.unwrap_or(Range { required: 0, limit: 0 });
    let wanted = match (range.required, range.limit) {
        (0, 0) => usual,
        (0, limit) => usual.min(limit / MIB * MIB),
        (required, _) => required,
    };
    let size = wanted.max(floor).div_ceil(MIB) * MIB;
    if range.limit != 0 && size > range.limit { Err("out of range") } else { Ok(size) }
}

/// May a volume that was made for one use be used in the other way?
pub(crate) fn grants(made: Shape, wanted: Shape) -> bool {
    match made {
        Shape::Block => wanted == Shape::Block,
        Shape::Read => wanted == Shape::Read,
        Shape::Mounted | Shape::Shared => matches!(wanted, Shape::Mounted | Shape::Shared),
    }
}
