//! ControllerModifyVolume (MV).

use crate::check::{Chapter, Check, Service};
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::ModifyVolume;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "ControllerModifyVolume",
    service: Service::Controller,
    needs: &[Need::Controller(ModifyVolume)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[];

const UNSEEN: &[(&str, &str)] = &[];
