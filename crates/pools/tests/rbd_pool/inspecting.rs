//! A look from outside, which changes nothing.

use orlop_model::{ControllerPublication, Finding, Pool, ReaderState, Remedy};
use orlop_pools::rbd::RbdPool;
use orlop_sys::ceph::NewImage;

use crate::fixture::{Fixture, MIB, volume, writer_capability};

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
