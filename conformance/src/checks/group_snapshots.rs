//! Group snapshots (GG).

use crate::check::{Chapter, Check, Service};
use crate::need::Need;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Group snapshots",
    service: Service::GroupController,
    needs: &[Need::GroupSnapshots],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[];

const UNSEEN: &[(&str, &str)] = &[];
