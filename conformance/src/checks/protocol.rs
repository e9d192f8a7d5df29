//! Protocol (PR).

use crate::check::{Chapter, Check, Service};

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Protocol",
    service: Service::Protocol,
    needs: &[],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[];

const UNSEEN: &[(&str, &str)] = &[];
