//! ControllerPublishVolume (CP).

use crate::check::{Chapter, Check, Service};
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::PublishUnpublishVolume;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "ControllerPublishVolume",
    service: Service::Controller,
    needs: &[Need::Controller(PublishUnpublishVolume)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[];

const UNSEEN: &[(&str, &str)] = &[];
