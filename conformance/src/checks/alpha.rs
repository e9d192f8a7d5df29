//! Alpha surfaces (AL).

use crate::check::{Chapter, Check, Service};

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Alpha surfaces",
    service: Service::Protocol,
    needs: &[],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[];

const UNSEEN: &[(&str, &str)] = &[];
