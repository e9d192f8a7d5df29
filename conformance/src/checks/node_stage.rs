//! NodeStageVolume (NS).

use crate::check::{Chapter, Check, Service};
use crate::need::Need;
use crate::wire::csi::v1::node_service_capability::rpc::Type::StageUnstageVolume;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "NodeStageVolume",
    service: Service::Node,
    needs: &[Need::Node(StageUnstageVolume)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[];

const UNSEEN: &[(&str, &str)] = &[];
