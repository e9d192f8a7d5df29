//! ControllerGetCapabilities (CC).

use crate::check::{Chapter, Check, Service};
use crate::need::Need;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "ControllerGetCapabilities",
    service: Service::Controller,
    needs: &[Need::ControllerService],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[];

const UNSEEN: &[(&str, &str)] = &[];
