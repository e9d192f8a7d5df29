//! Topology (TP).

use crate::check::{Chapter, Check, Service};

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Topology",
    service: Service::Controller,
    needs: &[],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[];

const UNSEEN: &[(&str, &str)] = &[];
