//! What is measured, each on a filesystem of its own.

mod callers;
mod changes;
mod copies;
mod crowd;
mod io;
mod life;
mod queues;

use clap::ValueEnum;

pub(crate) use callers::CREATIONS;
pub(crate) use changes::DELTA;
pub(crate) use crowd::SIDE_BY_SIDE;
pub(crate) use queues::WAYS;

use crate::Effort;
use crate::ground::Drivers;
use crate::results::Results;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Experiment {
    /// Probe, and a volume from its creation to its end
    Life,
    /// Snapshot, restore and clone
    Copies,
    /// Allocated and changed blocks
    Changes,
    /// I/O through a published volume
    Io,
    /// I/O through loop devices with other settings, and by a kernel thread without one
    Queues,
    /// Calls, memory and a cold start with many volumes present
    Crowd,
    /// Creations a second with several callers, and memory under that load
    Callers,
}

impl Experiment {
    /// Callers are the last: host-path's block volumes need a loop device each, and those that
    /// the kernel made for them are in everyone's way until they are removed.
    pub(crate) const ALL: [Self; 7] = [
        Self::Life,
        Self::Copies,
        Self::Changes,
        Self::Io,
        Self::Queues,
        Self::Crowd,
        Self::Callers,
    ];

    pub(crate) async fn run(self, drivers: &Drivers, effort: Effort, results: &mut Results) {
        match self {
            Self::Life => life::run(drivers, effort, results).await,
            Self::Copies => copies::run(drivers, effort, results).await,
            Self::Changes => changes::run(drivers, effort, results).await,
            Self::Io => io::run(drivers, effort, results).await,
            Self::Queues => queues::run(drivers, effort, results).await,
            Self::Crowd => crowd::run(drivers, effort, results).await,
            Self::Callers => callers::run(drivers, effort, results).await,
        }
    }
}
