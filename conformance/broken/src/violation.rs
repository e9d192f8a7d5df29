//! One way to break a rule.

use crate::interceptor::Interceptor;
use crate::memory::Reach;

/// What the broken plugin is built on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Base {
    /// The engine on a pool and a machine that only pretend: quick, but no path is real.
    Memory(Reach),
    /// The daemon on a real pool, for rules whose breach shows in files and mounts.
    Real,
}

#[derive(Clone, Copy)]
pub(crate) struct Violation {
    /// Unique, and made for `--only`.
    pub(crate) name: &'static str,
    /// The row that is broken, and that a check has to name.
    pub(crate) breaks: &'static str,
    /// One sentence.
    pub(crate) does: &'static str,
    pub(crate) on: Base,
    pub(crate) interceptor: fn() -> Interceptor,
}

impl Violation {
    pub(crate) fn is(&self, pattern: &str) -> bool {
        let is = |text: &str| text.eq_ignore_ascii_case(pattern);
        is(self.name) || is(self.breaks) || is(csi_conformance::row::prefix_of(self.breaks))
    }

    /// With pools that two nodes reach.
    pub(crate) const fn on_shared(mut self) -> Self {
        self.on = Base::Memory(Reach::Shared);
        self
    }

    /// With a pool in each of two places.
    pub(crate) const fn on_spread(mut self) -> Self {
        self.on = Base::Memory(Reach::Spread);
        self
    }

    pub(crate) const fn on_real(mut self) -> Self {
        self.on = Base::Real;
        self
    }
}

pub(crate) const fn violation(
    name: &'static str,
    breaks: &'static str,
    does: &'static str,
    interceptor: fn() -> Interceptor,
) -> Violation {
    Violation { name, breaks, does, on: Base::Memory(Reach::Local), interceptor }
}
