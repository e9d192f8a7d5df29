//! NodeGetVolumeStats (ST).

use crate::check::{Chapter, Check, Service};
use crate::need::Need;
use crate::wire::csi::v1::node_service_capability::rpc::Type::GetVolumeStats;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "NodeGetVolumeStats",
    service: Service::Node,
    needs: &[Need::Node(GetVolumeStats)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[];

const UNSEEN: &[(&str, &str)] = &[];
