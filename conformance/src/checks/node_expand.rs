//! NodeExpandVolume (NE).

use crate::check::{Chapter, Check, Service};
use crate::need::Need;
use crate::wire::csi::v1::node_service_capability::rpc::Type::ExpandVolume;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "NodeExpandVolume",
    service: Service::Node,
    needs: &[Need::Node(ExpandVolume)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[];

const UNSEEN: &[(&str, &str)] = &[];
