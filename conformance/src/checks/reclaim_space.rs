//! Reclaim space (RS).

use crate::check::{Chapter, Check, Service};
use crate::need::Need;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Reclaim space",
    service: Service::ReclaimSpace,
    needs: &[Need::AddonsIdentity],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[];

const UNSEEN: &[(&str, &str)] = &[];
