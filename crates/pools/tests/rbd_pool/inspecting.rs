//! A look from outside, which changes nothing.

use orlop_model::{ControllerPublication, Finding, Pool, ReaderState, Remedy};
use orlop_pools::rbd::RbdPool;
use orlop_sys::ceph::NewImage;

use crate::bed::{Bed, MIB, volume, writer_capability};

fn codes(bed: &Bed) -> Vec<&'static str> {
    let findings = RbdPool::inspect(&bed.config()).unwrap();
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
fn what_no_longer_belongs_together_is_told() {
    let Some(bed) = Bed::new() else { return };
    let pool = bed.open();
    let record = volume(&pool, "a", 8 * MIB);
    volume(&pool, "b", 8 * MIB);
    assert_eq!(codes(&bed), [""; 0]);

    let image = bed.image(&record.id);
    let (image_id, before) = (image.id().unwrap(), bed.objects_and_entries());
    image.set_metadata(&format!("orlop.writer.{image_id}.ghost"), "192.0.2.1:0/1").unwrap();
    assert_eq!(codes(&bed), ["unknown-writer"]);
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
    assert_eq!(codes(&bed), ["foreign-publication"]);

    image.set_metadata(&format!("orlop.record.{image_id}"), "{").unwrap();
    assert_eq!(codes(&bed), ["record-damaged"]);
    image.set_metadata(&format!("orlop.record.{image_id}"), "-").unwrap();
    bed.io().create_image("orlop-kept.none", NewImage::Zeroes { size: MIB }).unwrap();
    assert_eq!(codes(&bed), ["leftover", "leftover"]);
    assert!(before.iter().all(|entry| bed.objects_and_entries().contains(entry)));
}

#[test]
fn a_look_makes_nothing() {
    let Some(bed) = Bed::new() else { return };
    let before = bed.objects();
    assert!(RbdPool::inspect(&bed.config()).is_err());
    assert_eq!(bed.objects(), before);

    drop(bed.open());
    bed.remove_object("rbd_trash");
    let before = bed.objects();
    assert_eq!(codes(&bed), [""; 0]);
    assert_eq!(bed.objects(), before);
}
