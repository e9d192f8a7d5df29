//! Logical volumes of real LVM, through all of their life.

use std::collections::BTreeMap;

use orlop_model::{
    AccessMode, AccessType, CapabilitySet, FormatState, IoLimits, NameDigest, PoolId, Timestamp,
    VolumeCapability, VolumeId, VolumeParameters, VolumeRecord,
};

use super::commands::Lvm;
use super::layout::{ObjectId, RECORD};
use super::lv_state::{Action, LvState, LvTags, Step};
use super::record_tags::tags_of;
use super::report::LvKind;
use super::testbed::{EXTENT, MIB, Testbed};

fn pool() -> PoolId {
    "01234567".parse().unwrap()
}

/// With an option for mkfs that does not fit into a tag.
fn record(name: &str, length_of_option: usize) -> VolumeRecord {
    let capability =
        VolumeCapability { access: AccessType::Block, mode: AccessMode::SingleNodeWriter };
    let mkfs_options = vec!["-L".to_owned(), "é".repeat(length_of_option)];
    VolumeRecord {
        version: 1,
        id: VolumeId::new(pool(), NameDigest::of_text(name)),
        name: name.parse().unwrap(),
        capacity_bytes: EXTENT,
        capabilities: CapabilitySet::new(vec![capability]).unwrap(),
        parameters: VolumeParameters { mkfs_options, ..VolumeParameters::default() },
        limits: IoLimits::default(),
        source: None,
        format: FormatState::Raw,
        growing: false,
        ephemeral: false,
        never_published: false,
        created: Timestamp { seconds: 1, nanos: 2 },
        published: BTreeMap::new(),
    }
}

fn tags_in(lvm: &Lvm, name: &str) -> Option<LvTags> {
    let report = lvm.report().unwrap();
    let tags = &report.lv(name)?.tags;
    LvTags::parse(tags.iter().map(String::as_str)).unwrap()
}

fn take(lvm: &Lvm, name: &str, from: &LvTags, step: Step<'_>) {
    let (action, _) = from.after(step).unwrap();
    let lv = lvm.group().lv(&name);
    let done = match &action {
        Action::RemoveLv => lvm.change(|| "remove".to_owned(), "lvremove", &[lv]),
        Action::ChangeTags { remove, add } => {
            let removed = remove.iter().flat_map(|tag| ["--deltag", tag]);
            let added = add.iter().flat_map(|tag| ["--addtag", tag]);
            let arguments: Vec<&str> = removed.chain(added).chain([lv.as_str()]).collect();
            lvm.change(|| "change tags".to_owned(), "lvchange", &arguments)
        }
    };
    done.unwrap();
}

#[test]
fn volume_passes_through_all_its_states() {
    let Some(bed) = Testbed::new(1) else { return };
    let (lvm, first) = (bed.lvm(), record("a volume", 700));
    let name = first.id.to_string();
    let draft = LvTags::draft();
    bed.create_lv(&name, 1, &draft.iter().map(str::to_owned).collect::<Vec<_>>());
    bed.create_lv("foreign", 1, &["backup".to_owned()]);
    assert_eq!(tags_in(&lvm, "foreign"), None);
    assert_eq!(ObjectId::of_lv(&pool(), &name), Some(ObjectId::Volume(first.id.clone())));

    let tags = tags_of(RECORD, &first).unwrap();
    assert!(tags.len() > 2, "the record takes several tags");
    take(&lvm, &name, &tags_in(&lvm, &name).unwrap(), Step::Commit { record: &tags });
    let whole = tags_in(&lvm, &name).unwrap();
    assert_eq!(whole.state(), LvState::Whole);
    assert_eq!(whole.record::<VolumeRecord>(&first.id), Ok(first.clone()));

    let second = VolumeRecord { capacity_bytes: 2 * EXTENT, ..record("a volume", 3) };
    take(&lvm, &name, &whole, Step::Replace { record: &tags_of(RECORD, &second).unwrap() });
    let whole = tags_in(&lvm, &name).unwrap();
    assert_eq!(whole.record::<VolumeRecord>(&first.id), Ok(second));

    take(&lvm, &name, &whole, Step::Delete);
    let deleted = tags_in(&lvm, &name).unwrap();
    assert_eq!(deleted.state(), LvState::Deleted);
    take(&lvm, &name, &deleted, Step::Remove);
    assert_eq!(tags_in(&lvm, &name), None);
}

#[test]
fn tag_that_was_removed_by_hand_is_damage() {
    let Some(bed) = Testbed::new(1) else { return };
    let (lvm, record) = (bed.lvm(), record("a volume", 700));
    let (name, tags) = (record.id.to_string(), tags_of(RECORD, &record).unwrap());
    let whole = LvTags::whole(&tags);
    bed.create_lv(&name, 1, &whole.iter().map(str::to_owned).collect::<Vec<_>>());
    assert_eq!(
        tags_in(&lvm, &name).unwrap().record::<VolumeRecord>(&record.id),
        Ok(record.clone())
    );
    bed.run("lvchange", &["--deltag", &tags[1], &lvm.group().lv(&name)]);
    let damaged = tags_in(&lvm, &name).unwrap().record::<VolumeRecord>(&record.id).unwrap_err();
    assert!(damaged.contains("written together"), "{damaged}");
}

#[test]
fn thin_volumes_are_devices_with_their_shares() {
    let Some(bed) = Testbed::with_devices(1) else { return };
    let (lvm, group) = (bed.lvm(), bed.group.as_str());
    bed.create_thin_pool("tp", 64 * MIB);
    let create = ["--virtualsize", "1g", "--thinpool", "tp", "--name", "thin", group];
    bed.run("lvcreate", &create);
    let report = lvm.report().unwrap();
    let pool = report.lv("tp").unwrap();
    assert_eq!((pool.kind(), pool.size), (LvKind::ThinPool, 64 * MIB));
    assert!(pool.metadata_size.is_some() && pool.metadata_used.is_some(), "{pool:?}");
    let thin = report.lv("thin").unwrap();
    assert_eq!((thin.kind(), thin.thin_pool.as_str(), thin.size), (LvKind::Thin, "tp", 1 << 30));
    assert!(thin.is_active() && !thin.is_open() && thin.device().is_some(), "{thin:?}");
    let segment = |name| report.segments.iter().find(|segment| segment.lv == name).unwrap();
    assert_eq!(segment("thin").thin_id, Some(1));
    assert!(segment("tp").chunk >= 64 << 10);

    let device = format!("/dev/{group}/thin");
    let open = std::fs::File::open(&device).unwrap();
    assert!(lvm.report().unwrap().lv("thin").unwrap().is_open());
    let in_use = lvm.change(|| "remove".to_owned(), "lvremove", &[lvm.group().lv(&"thin")]);
    assert!(matches!(in_use, Err(orlop_model::Error::Precondition(_))), "{in_use:?}");
    drop(open);
    bed.run("lvremove", &[lvm.group().lv(&"thin")]);
}
