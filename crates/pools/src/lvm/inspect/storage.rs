//! The thin pool and its volume group.

use orlop_model::Finding;

use super::super::capacity::{Limits, LvmCapacity};
use super::super::health::{missing_disks, problem_of_thin_pool};
use super::super::open::LvmPoolConfig;
use super::InspectedPool;

impl InspectedPool<'_> {
    pub(super) fn inspect_storage(&mut self, config: &LvmPoolConfig) {
        let lv = self.lvm.group().lv(&self.thin_pool.name);
        let subject = format!("pool {}", config.name);
        if let Some((problem, _)) = problem_of_thin_pool(&lv, self.thin_pool) {
            return self.found(by_hand("thin-pool", subject, problem.message));
        }
        if let Some(problem) = missing_disks(&self.lvm, self.report) {
            self.found(by_hand("disk-missing", subject.clone(), problem.message));
        }
        let limits = Limits {
            floor: config.floor,
            overcommit_percent: config.overcommit_percent,
            extension: config.extension,
        };
        let (lvm, catalogue) = (&self.lvm, &self.catalogue);
        let capacity = LvmCapacity::new(lvm, catalogue, &config.name, &self.thin_pool.name, limits);
        if let Ok(Some(shortage)) = capacity.shortage() {
            self.found(by_hand("full", subject, shortage));
        }
    }
}

/// The text has the remedy as well, after the last semicolon.
fn by_hand(code: &'static str, subject: String, text: String) -> Finding {
    match text.rsplit_once("; ") {
        Some((problem, remedy)) => Finding::by_hand(code, subject, problem, remedy),
        None => Finding::by_hand(code, subject, text, "see the problem"),
    }
}
