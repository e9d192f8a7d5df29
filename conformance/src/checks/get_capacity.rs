//! GetCapacity (GC).

use crate::check::{Chapter, Check, Service};
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::GetCapacity;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "GetCapacity",
    service: Service::Controller,
    needs: &[Need::Controller(GetCapacity)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[];

const UNSEEN: &[(&str, &str)] = &[];
