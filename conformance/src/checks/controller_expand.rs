//! ControllerExpandVolume (CE).

use crate::check::{Chapter, Check, Service};
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::ExpandVolume;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "ControllerExpandVolume",
    service: Service::Controller,
    needs: &[Need::Controller(ExpandVolume)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[];

const UNSEEN: &[(&str, &str)] = &[];
