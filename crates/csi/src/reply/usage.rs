//! Health and fill level.

use orlop_engine::request::VolumeUsage;
use orlop_model::{Condition, Usage};

use super::{bytes, in_brief};
use crate::proto::csi::v1;
use crate::proto::csi::v1::volume_usage::Unit;

/// AL-11: never without a text.
pub(crate) fn condition(condition: &Condition) -> v1::VolumeCondition {
    let text = match (condition.message(), condition.is_abnormal()) {
        ("", true) => "abnormal",
        ("", false) => "healthy",
        (text, _) => text,
    };
    v1::VolumeCondition { abnormal: condition.is_abnormal(), message: in_brief(text) }
}

pub(crate) fn usage(usage: VolumeUsage) -> Vec<v1::VolumeUsage> {
    match usage {
        VolumeUsage::Filesystem(usage) => filesystem(&usage),
        VolumeUsage::Block { total_bytes } => vec![v1::VolumeUsage {
            total: bytes(total_bytes),
            unit: Unit::Bytes.into(),
            ..Default::default()
        }],
        VolumeUsage::Unknown => Vec::new(),
    }
}

fn filesystem(usage: &Usage) -> Vec<v1::VolumeUsage> {
    let mut entries = vec![entry(Unit::Bytes, usage.total_bytes, usage.available_bytes)];
    // ST-10: btrfs counts no inodes.
    if usage.total_inodes > 0 {
        entries.push(entry(Unit::Inodes, usage.total_inodes, usage.free_inodes));
    }
    entries
}

fn entry(unit: Unit, total: u64, available: u64) -> v1::VolumeUsage {
    v1::VolumeUsage {
        available: bytes(available),
        total: bytes(total),
        used: bytes(total.saturating_sub(available)),
        unit: unit.into(),
    }
}
