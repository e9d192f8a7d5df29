//! ListSnapshots (LS).

use crate::check::{Chapter, Check, Service};
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::ListSnapshots;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "ListSnapshots",
    service: Service::Controller,
    needs: &[Need::Controller(ListSnapshots)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[];

const UNSEEN: &[(&str, &str)] = &[];
