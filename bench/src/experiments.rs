//! What is measured, each on a separate filesystem.

mod callers;
mod changes;
mod copies;
mod io;
mod lifecycle;
mod many_volumes;
mod queues;

use clap::ValueEnum;

pub(crate) use callers::CREATIONS;
pub(crate) use changes::DELTA;
pub(crate) use io::{Rounds, in_turns};
pub(crate) use many_volumes::SIDE_BY_SIDE;
pub(crate) use queues::WAYS;

use crate::Effort;
use crate::results::Results;
use crate::testbed::Drivers;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Experiment {
    /// Probe, and a volume from its creation to its end
    Lifecycle,
    /// Snapshot, restore and clone
    Copies,
    /// Allocated and changed blocks
    Changes,
    /// I/O through a published volume
    Io,
    /// I/O through loop devices with other settings, and by a kernel thread without one
    Queues,
    /// Calls, memory and a cold start with many volumes present
    ManyVolumes,
    /// Creations a second with several callers, and memory under that load
    Callers,
}

impl Experiment {
    /// Callers are the last: host-path's block volumes need a loop device each, and those that
    /// the kernel made for them are in everyone's way until they are removed.
    pub(crate) const ALL: [Self; 7] = [
        Self::Lifecycle,
        Self::Copies,
        Self::Changes,
        Self::Io,
        Self::Queues,
        Self::ManyVolumes,
        Self::Callers,
    ];

    pub(crate) async fn run(self, drivers: &Drivers, effort: Effort, results: &mut Results) {
        match self {
            Self::Lifecycle => lifecycle::run(drivers, effort, results).await,
            Self::Copies => copies::run(drivers, effort, results).await,
            Self::Changes => changes::run(drivers, effort, results).await,
            Self::Io => io::run(drivers, effort, results).await,
            Self::Queues => queues::run(drivers, effort, results).await,
            Self::ManyVolumes => many_volumes::run(drivers, effort, results).await,
            Self::Callers => callers::run(drivers, effort, results).await,
        }
    }
}
