//! CSI-Addons identity (CA).

use crate::check::{Chapter, Check, Service};
use crate::need::Need;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "CSI-Addons identity",
    service: Service::AddonsIdentity,
    needs: &[Need::AddonsIdentity],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[];

const UNSEEN: &[(&str, &str)] = &[];
