//! General rules (GEN).

use crate::check::{Chapter, Check, Service};

pub(super) const CHAPTER: Chapter = Chapter {
    title: "General rules",
    service: Service::Protocol,
    needs: &[],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[];

const UNSEEN: &[(&str, &str)] = &[];
