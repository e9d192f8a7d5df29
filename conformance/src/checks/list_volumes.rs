//! ListVolumes (LV).

use crate::check::{Chapter, Check, Service};
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::ListVolumes;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "ListVolumes",
    service: Service::Controller,
    needs: &[Need::Controller(ListVolumes)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[];

const UNSEEN: &[(&str, &str)] = &[];
