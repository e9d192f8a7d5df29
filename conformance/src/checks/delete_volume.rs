//! DeleteVolume (DV).

use crate::check::{Chapter, Check, Service};
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::CreateDeleteVolume;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "DeleteVolume",
    service: Service::Controller,
    needs: &[Need::Controller(CreateDeleteVolume)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[];

const UNSEEN: &[(&str, &str)] = &[];
