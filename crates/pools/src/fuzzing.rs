//! Records and marks of pools, read from arbitrary bytes. What is read is written again and read
//! back as it was; what is not must give a reason. And the metadata of thin pools.

use std::path::Path;

use orlop_model::{GroupSnapshotRecord, SnapshotRecord, VolumeGroupRecord, VolumeRecord};
use serde::Deserialize;

use crate::image::attach::{label_of, parse_label};
use crate::image::pool_header as image_header;
use crate::rbd::capacity::available_to;
use crate::rbd::catalogue::{GroupSnapshotEntry, SnapshotEntry};
use crate::rbd::intent::IntentRecord;
use crate::rbd::pool_header as rbd_header;
use crate::rbd::uncommitted_group_snapshot::IntendedGroupSnapshot;
use crate::rbd::uncommitted_snapshot::IntendedSnapshot;
use crate::recorded::{Recorded, parse_record, to_text};

/// The first byte says what the rest is.
pub fn records(input: &[u8]) {
    let Some((kind, text)) = input.split_first() else { return };
    match kind % 8 {
        0 => record::<VolumeRecord>(text),
        1 => record::<SnapshotRecord>(text),
        2 => record::<GroupSnapshotRecord>(text),
        3 => record::<VolumeGroupRecord>(text),
        4 => marks(text),
        5 => {
            snapshot_entry(text);
            group_entry(text);
        }
        6 => cluster_answers(text),
        _ => label(text),
    }
}

/// The first byte says what the rest is.
pub fn thin_metadata(input: &[u8]) {
    crate::lvm::changes::fuzz_thin_metadata(input);
}

/// The id that a record has; the reader knows it from the file's name.
#[derive(Deserialize)]
struct Named {
    id: String,
}

fn named_id<R: Recorded>(text: &[u8]) -> Option<R::Id> {
    serde_json::from_slice::<Named>(text).ok()?.id.parse().ok()
}

fn record<R: Recorded>(text: &[u8]) {
    let Some(id) = named_id::<R>(text) else { return };
    match parse_record::<R>(&id, &"record", text) {
        Err(reason) => assert!(!reason.is_empty()),
        Ok(record) => {
            assert_eq!(record.id().to_string(), id.to_string());
            let written = to_text(&record).unwrap_or_default();
            let again = parse_record::<R>(&id, &"record", &written);
            let rewritten = again.map(|record| to_text(&record).unwrap_or_default());
            assert_eq!(rewritten.as_ref(), Ok(&written));
        }
    }
}

fn marks(text: &[u8]) {
    let image = image_header::parse(Path::new("/pool/orlop.pool"), text);
    if let Ok(contents) = &image {
        let written = serde_json::to_vec(contents).unwrap_or_default();
        let again = image_header::parse(Path::new("/pool/orlop.pool"), &written);
        assert_eq!(format!("{again:?}"), format!("{image:?}"));
    }
    let id = rbd_header::parse("pool", text);
    if let (Ok(contents), Ok(id)) = (&image, &id) {
        assert!(format!("{contents:?}").contains(id.as_str()));
    }
}

fn group_entry(text: &[u8]) {
    let Some(id) = named_id::<GroupSnapshotRecord>(text) else { return };
    let Ok(entry) = GroupSnapshotEntry::parse(&id, text) else { return };
    let written = entry.text().unwrap_or_default();
    let again = GroupSnapshotEntry::parse(&id, &written);
    assert!(
        again.is_ok_and(|again| again.location == entry.location && again.record == entry.record)
    );
}

/// A record and a place in one object: neither may hide a part of the other.
fn snapshot_entry(text: &[u8]) {
    let Some(id) = named_id::<SnapshotRecord>(text) else { return };
    let Ok(entry) = SnapshotEntry::parse(&id, text) else { return };
    let written = entry.text().unwrap_or_default();
    let again = SnapshotEntry::parse(&id, &written);
    assert!(
        again.is_ok_and(|again| again.location == entry.location && again.record == entry.record)
    );
}

fn cluster_answers(text: &[u8]) {
    drop(available_to("rbd", text));
    drop(serde_json::from_slice::<IntentRecord<IntendedSnapshot>>(text));
    drop(serde_json::from_slice::<IntentRecord<IntendedGroupSnapshot>>(text));
}

fn label(text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    if let Some((id, access)) = parse_label(&text) {
        assert_eq!(label_of(&id, access), text);
    }
}

#[cfg(test)]
mod tests;
