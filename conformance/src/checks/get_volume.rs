//! ControllerGetVolume (GV).

use crate::check::{Chapter, Check, Service};
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::GetVolume;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "ControllerGetVolume",
    service: Service::Controller,
    needs: &[Need::Controller(GetVolume)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[];

const UNSEEN: &[(&str, &str)] = &[];
