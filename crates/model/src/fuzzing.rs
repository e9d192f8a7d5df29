//! Values that callers name, parsed from arbitrary text. Each function fails where something must
//! hold of every input and does not.

use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::path::Component;
use std::str::FromStr;

use crate::id::shown;
use crate::{
    CapacityRange, FsType, FsUuid, GroupSnapshotId, IoLimits, IoLimitsChange, MountFlags, NodeId,
    ObjectName, PoolId, SnapshotId, TargetPath, Topology, VolumeGroupId, VolumeId,
    VolumeParameters,
};

/// The same text as each of the kinds that a caller could mean by it.
pub fn identifiers(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    id::<PoolId>(&text);
    id::<VolumeId>(&text);
    id::<SnapshotId>(&text);
    id::<GroupSnapshotId>(&text);
    id::<VolumeGroupId>(&text);
    names(&text);
    path(&text);
    uuid(&text);
    shortened(&text);
    mount_flags(&text);
    let map = entries(&text);
    parameters(&map);
    limits(&map);
    topology(&map);
    sizes(input);
}

/// An id becomes a file name, a label, an object's name and an argument.
fn id<Id: FromStr + Display + Clone + PartialEq + Debug>(text: &str) {
    let Ok(id) = text.parse::<Id>() else { return };
    let printed = id.to_string();
    assert_eq!(printed, text);
    assert!(!printed.starts_with(['-', '.']), "{printed}");
    assert!(printed.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'), "{printed}");
    assert!(printed.len() <= 64, "{printed}");
    assert_eq!(printed.parse::<Id>().ok(), Some(id));
}

fn names(text: &str) {
    if let Ok(name) = text.parse::<ObjectName>() {
        assert_eq!(name.as_str(), text);
        assert!((1..=ObjectName::LONGEST).contains(&text.len()));
        assert_eq!(ObjectName::try_from(String::from(name.clone())).ok(), Some(name));
    }
    if let Ok(node) = text.parse::<NodeId>() {
        assert!(node.as_str() == text && !text.contains(char::is_control));
    }
    if let Ok(fs) = text.parse::<FsType>() {
        assert_eq!(fs.to_string().parse::<FsType>().ok(), Some(fs));
    }
}

fn path(text: &str) {
    let Ok(path) = TargetPath::parse("path", text) else { return };
    let printed = path.to_string();
    let mut components = path.as_path().components();
    assert_eq!(components.next(), Some(Component::RootDir), "{printed}");
    assert!(components.all(|part| matches!(part, Component::Normal(_))), "{printed}");
    assert!(printed.len() > 1 && !printed.ends_with('/') && !printed.contains("//"), "{printed}");
    assert!(!printed.contains(char::is_control) && printed.len() <= text.len());
    assert_eq!(TargetPath::parse("path", &printed).ok(), Some(path));
}

fn uuid(text: &str) {
    let Ok(uuid) = FsUuid::try_from(text.to_owned()) else { return };
    let printed = uuid.to_string();
    // Not a sign or a space that a number may have: it goes to mkfs.
    let is_plain = |b: u8| b.is_ascii_hexdigit() || b == b'-';
    assert!(text.bytes().all(is_plain), "{text:?}");
    assert_eq!(FsUuid::try_from(printed).ok(), Some(uuid));
}

fn shortened(text: &str) {
    let short = shown(text);
    assert!(short.chars().count() <= 129 && !short.contains(char::is_control), "{short:?}");
}

/// What was vetted as one option stays one.
fn mount_flags(text: &str) {
    let flags: Vec<String> = text.lines().map(str::to_owned).collect();
    let count = flags.len();
    let Ok(flags) = MountFlags::parse(flags) else { return };
    let options = flags.options();
    assert!(options.len() <= count);
    for option in &options {
        assert!(!option.contains([' ', '\0', '\n', '/', '\\']), "{option:?}");
        assert!(!option.contains(',') || option.contains("context="), "{option:?}");
    }
    for fs in FsType::ALL {
        drop(flags.check_fit(fs));
    }
    let again = MountFlags::try_from(Vec::from(flags.clone()));
    assert_eq!(again.ok(), Some(flags));
}

fn parameters(map: &BTreeMap<String, String>) {
    let Ok((parameters, limits)) = VolumeParameters::parse(map) else { return };
    // Pairs of an option and a word that is none: nothing becomes an option by itself.
    let words = &parameters.mkfs_options;
    assert!(words.len().is_multiple_of(2), "{words:?}");
    for (option, value) in words.iter().step_by(2).zip(words.iter().skip(1).step_by(2)) {
        assert!(option.len() == 2 && option.starts_with('-'), "{option:?}");
        assert!(!value.starts_with('-') && !value.contains(['/', ' ']), "{value:?}");
    }
    assert!(parameters.pool.is_none_or(|pool| !pool.starts_with('-') && !pool.contains('/')));
    let once = limits.applied_to(IoLimits::default());
    assert_eq!(limits.applied_to(once), once);
}

/// Values are digits or `max`, and 0 is no limit.
fn limits(map: &BTreeMap<String, String>) {
    let Ok(change) = IoLimitsChange::parse(map) else { return };
    for value in map.values() {
        assert!(value == "max" || value.bytes().all(|b| b.is_ascii_digit()), "{value:?}");
    }
    assert_eq!(change.is_empty(), map.is_empty());
    let IoLimits { read_iops, write_iops, read_bytes_per_second, write_bytes_per_second } =
        change.applied_to(IoLimits::default());
    let all = [read_iops, write_iops, read_bytes_per_second, write_bytes_per_second];
    assert!(!all.contains(&Some(0)));
}

fn topology(map: &BTreeMap<String, String>) {
    let Ok(topology) = Topology::parse(map.clone()) else { return };
    assert!(topology.is_within(&topology) && topology.is_within(&Topology::default()));
    let again = BTreeMap::from(topology.clone());
    assert_eq!(again, *map);
    assert_eq!(Topology::try_from(again).ok(), Some(topology));
}

/// What is chosen holds what was asked for.
fn sizes(input: &[u8]) {
    let mut numbers = input.chunks(8).filter_map(|chunk| chunk.first_chunk().copied());
    let (Some(required), Some(limit)) = (numbers.next(), numbers.next()) else { return };
    let range = CapacityRange::parse(i64::from_le_bytes(required), i64::from_le_bytes(limit));
    let Ok(range) = range else { return };
    let (floor, preferred) = (numbers.next().unwrap_or_default(), numbers.next());
    let preferred = preferred.map_or(1 << 30, u64::from_le_bytes);
    let chosen = CapacityRange::choose(Some(&range), u64::from_le_bytes(floor), preferred);
    if let Ok(chosen) = chosen {
        assert!(
            range.holds(chosen) && chosen >= u64::from_le_bytes(floor),
            "{chosen} of {range:?}"
        );
        assert!(chosen.is_multiple_of(crate::ALLOCATION_UNIT), "{chosen}");
    }
}

/// `key=value` lines.
fn entries(text: &str) -> BTreeMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests;
