//! DeleteSnapshot (DS).

use crate::check::{Chapter, Check, Service};
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::CreateDeleteSnapshot;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "DeleteSnapshot",
    service: Service::Controller,
    needs: &[Need::Controller(CreateDeleteSnapshot)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[];

const UNSEEN: &[(&str, &str)] = &[];
