//! NodePublishVolume (NP).

use crate::check::{Chapter, Check, Service};
use crate::need::Need;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "NodePublishVolume",
    service: Service::Node,
    needs: &[Need::NodeService],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[];

const UNSEEN: &[(&str, &str)] = &[];
