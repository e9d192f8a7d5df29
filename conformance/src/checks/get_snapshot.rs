//! GetSnapshot (GS).

use crate::check::{Chapter, Check, Service};
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::GetSnapshot;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "GetSnapshot",
    service: Service::Controller,
    needs: &[Need::Controller(GetSnapshot)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[];

const UNSEEN: &[(&str, &str)] = &[];
