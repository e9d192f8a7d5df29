//! A look from outside, which changes nothing.

use orlop_model::{ControllerPublication, Finding, Pool, ReaderState, Remedy};
use orlop_pools::rbd::RbdPool;
use orlop_sys::ceph::{NewImage, Update};

use crate::fixture::{Fixture, MIB, snapshot, until, volume, writer_capability};
use crate::groups::group;

fn codes(fixture: &Fixture) -> Vec<&'static str> {
    let (_, findings) = RbdPool::inspect(&fixture.config()).unwrap();
    assert!(findings.iter().all(is_by_hand), "others use the pool: nothing is repaired");
    findings.iter().map(|finding| finding.code).collect()
}

fn is_by_hand(finding: &Finding) -> bool {
    match finding.remedy {
        Remedy::ByHand(_) => true,
        Remedy::Repair(_) => false,
    }
}

#[test]
fn inspection_reports_inconsistent_objects() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let record = volume(&pool, "a", 8 * MIB);
    volume(&pool, "b", 8 * MIB);
    assert_eq!(codes(&fixture), [""; 0]);

    let image = fixture.image(&record.id);
    let (image_id, before) = (image.id().unwrap(), fixture.objects_and_entries());
    image.set_metadata(&format!("orlop.writer.{image_id}.ghost"), "192.0.2.1:0/1").unwrap();
    assert_eq!(codes(&fixture), ["unknown-writer"]);
    let publication = ControllerPublication {
        read_only: false,
        capability: writer_capability(),
        leaving: false,
        reader: ReaderState::Away,
    };
    pool.catalogue()
        .update_volume(&record.id, &mut |record| {
            record.published.insert("ghost".parse().unwrap(), publication.clone());
            Ok(())
        })
        .unwrap();
    assert_eq!(codes(&fixture), ["foreign-publication"]);

    image.set_metadata(&format!("orlop.record.{image_id}"), "{").unwrap();
    assert_eq!(codes(&fixture), ["record-damaged"]);
    image.set_metadata(&format!("orlop.record.{image_id}"), "-").unwrap();
    fixture.io().create_image("orlop-kept.none", NewImage::Zeroes { size: MIB }).unwrap();
    assert_eq!(codes(&fixture), ["leftover", "leftover"]);
    assert!(before.iter().all(|entry| fixture.objects_and_entries().contains(entry)));
}

/// The records were lost, and an older copy of them was restored.
#[test]
fn snapshots_that_the_records_do_not_know_are_reported() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let record = volume(&pool, "a", 8 * MIB);
    let known = snapshot(&pool, "known", &record);
    let later = snapshot(&pool, "later", &record);
    let together = group(&pool, "g", &[&record]);
    // Nor is one reported whose image was migrated, so that its record names another.
    let text = fixture.io().omap_get("orlop.records", &known.id.to_string()).unwrap().unwrap();
    let mut entry: serde_json::Value = serde_json::from_slice(&text).unwrap();
    entry["image"] = "another".into();
    let migrated = |text: &[u8]| Update::default().set(&known.id.to_string(), text);
    fixture.io().update("orlop.records", &migrated(entry.to_string().as_bytes())).unwrap();
    assert_eq!(codes(&fixture), [""; 0]);
    fixture.io().update("orlop.records", &migrated(&text)).unwrap();
    let mut lost = vec![later.id.to_string(), together.id.to_string()];
    lost.extend(together.members.iter().map(ToString::to_string));
    let update = lost.iter().fold(Update::default(), |update, key| update.remove(key));
    fixture.io().update("orlop.records", &update).unwrap();
    assert_eq!(codes(&fixture), ["unrecorded-snapshot"; 2]);
    // Nor do they become known by deleting the volume, whose image is not freed.
    pool.provisioner().ensure_no_volume(&record.id).unwrap();
    pool.provisioner().ensure_no_snapshot(&known.id).unwrap();
    let (_, findings) = RbdPool::inspect(&fixture.config()).unwrap();
    assert_eq!(findings.len(), 2);
    for finding in &findings {
        let Remedy::ByHand(advice) = &finding.remedy else { panic!("{}", finding.problem) };
        let command: Vec<&str> = advice.split('`').nth(1).unwrap().split(' ').collect();
        fixture.rbd(&command[1..]);
    }
    let collector = fixture.open_collecting_garbage();
    until("the image is freed", || fixture.is_empty());
    drop(collector);
}

#[test]
fn inspection_creates_nothing() {
    let Some(fixture) = Fixture::new() else { return };
    let before = fixture.objects();
    assert!(RbdPool::inspect(&fixture.config()).is_err());
    assert_eq!(fixture.objects(), before);

    drop(fixture.open());
    fixture.remove_object("rbd_trash");
    let before = fixture.objects();
    assert_eq!(codes(&fixture), [""; 0]);
    assert_eq!(fixture.objects(), before);
}
