//! Snapshot metadata (SM).

use crate::check::{Chapter, Check, Service};
use crate::need::Need;
use crate::wire::csi::v1::plugin_capability::service::Type::SnapshotMetadataService;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Snapshot metadata",
    service: Service::SnapshotMetadata,
    needs: &[Need::Plugin(SnapshotMetadataService)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[];

const UNSEEN: &[(&str, &str)] = &[];
