#![allow(clippy::unwrap_used)]

use orlop_engine::request::VolumeUsage;
use orlop_model::HealthReason::{PoolErrors, RecordDamaged};
use orlop_model::{Condition, Usage};

use super::*;
use crate::proto::csi::v1::volume_usage::Unit;

#[test]
fn texts_are_truncated_at_character_boundaries() {
    assert_eq!(shortened("short", 128), "short");
    let exact = "x".repeat(128);
    assert_eq!(shortened(&exact, 128), exact);
    for text in ["x".repeat(129), "é".repeat(65), "🐙".repeat(40)] {
        let cut = shortened(&text, 128);
        assert!(cut.len() <= 128 && cut.len() > 120, "{}", cut.len());
        assert!(cut.ends_with('…'));
        assert!(text.starts_with(cut.trim_end_matches('…')));
    }
}

#[test]
fn a_health_text_has_no_half_sentences() {
    let full = "pool default is below its floor: 1.0 GiB free of 10.0 GiB, floor 1.0 GiB; delete volumes or snapshots, \
                run fstrim on mounted volumes in which files were deleted, or enlarge it";
    assert_eq!(
        in_brief(full),
        "pool default is below its floor: 1.0 GiB free of 10.0 GiB, floor 1.0 GiB; delete volumes or snapshots…"
    );
    let long = format!("{}; mend it", "x".repeat(124));
    assert_eq!(in_brief(&long), format!("{}…", "x".repeat(124)));
    assert_eq!(in_brief("all is said; so it stays"), "all is said; so it stays");
    for text in ["x".repeat(129), "é".repeat(65), format!("a, {}", "x".repeat(129))] {
        let brief = in_brief(&text);
        assert!(brief.len() > LONGEST_TEXT - 4 && brief.len() <= LONGEST_TEXT, "{brief}");
        assert!(brief.ends_with('…'), "{brief}");
    }
}

#[test]
fn condition_message_is_short_and_never_empty() {
    let long = condition(&Condition::abnormal(PoolErrors, "the disk is on fire; ".repeat(20)));
    assert!(long.abnormal && long.message.len() <= LONGEST_TEXT);
    assert_eq!(condition(&Condition::healthy("")).message, "healthy");
    assert_eq!(condition(&Condition::abnormal(PoolErrors, "")).message, "abnormal");
}

#[test]
fn sizes_saturate_at_int64_max() {
    assert_eq!(bytes(5), 5);
    assert_eq!(bytes(u64::MAX), i64::MAX);
}

#[test]
fn unknown_usage_is_omitted() {
    let full = Usage {
        total_bytes: 100,
        available_bytes: 30,
        total_inodes: 10,
        free_inodes: 4,
        has_given_up: false,
    };
    let entries = usage(VolumeUsage::Filesystem(full));
    let shown: Vec<_> = entries
        .iter()
        .map(|entry| (entry.unit(), entry.total, entry.available, entry.used))
        .collect();
    assert_eq!(shown, [(Unit::Bytes, 100, 30, 70), (Unit::Inodes, 10, 4, 6)]);

    let without_inodes = Usage { total_inodes: 0, free_inodes: 0, ..full };
    assert_eq!(usage(VolumeUsage::Filesystem(without_inodes)).len(), 1);

    let block = usage(VolumeUsage::Block { total_bytes: 7 });
    assert_eq!((block[0].unit(), block[0].total), (Unit::Bytes, 7));
    assert!(usage(VolumeUsage::Unknown).is_empty());
}

#[test]
fn a_damaged_volume_is_listed_by_its_id() {
    let status = VolumeStatus {
        id: "v-0badcafe-00112233445566778899aabbccddeeff".parse().unwrap(),
        volume: None,
        condition: Condition::abnormal(RecordDamaged, "its record cannot be read"),
    };
    let listed = status_volume(&status);
    assert_eq!(listed.volume_id, status.id.to_string());
    assert_eq!(listed.capacity_bytes, 0);
    assert!(published_nodes(&status).is_empty());
}

#[test]
fn topologies_and_publish_contexts_become_maps() {
    let place = Topology::parse([("zone".to_owned(), "a".to_owned())]).unwrap();
    assert_eq!(topology(&place).segments["zone"], "a");
    let context = publish_context(PublishContext { read_only: true });
    assert_eq!(
        context.into_iter().collect::<Vec<_>>(),
        [("readonly".to_owned(), "true".to_owned())]
    );
}
