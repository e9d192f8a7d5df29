//! Pools that are not well while Probe does not fail; each is logged once.

use orlop_model::Error;

#[derive(Default)]
pub(crate) struct Readiness {
    pub(crate) unready: bool,
    pub(crate) all: Vec<Error>,
}

impl Readiness {
    /// Only what is new: Probe is asked every few seconds.
    pub(crate) fn log_after(&self, before: &Self) {
        if self.all.is_empty() && !before.all.is_empty() {
            tracing::info!("all pools respond again");
        }
        let is_new = |why: &&Error| {
            self.unready != before.unready || !before.all.iter().any(|other| is_same(other, why))
        };
        for why in self.all.iter().filter(is_new) {
            match (self.unready, why) {
                (true, _) => tracing::warn!(%why, "not ready: no pool can be served"),
                (false, Error::Unreachable { .. }) => {
                    tracing::warn!(%why, "ready, but a pool is absent");
                }
                (false, _) => tracing::error!(%why, "ready, but a pool has failed"),
            }
        }
    }
}

/// A reason may tell for how long it has lasted, which makes it no other one.
fn is_same(one: &Error, other: &Error) -> bool {
    match (one, other) {
        (Error::Unreachable { doing: one, .. }, Error::Unreachable { doing: other, .. }) => {
            one == other
        }
        _ => one == other,
    }
}
