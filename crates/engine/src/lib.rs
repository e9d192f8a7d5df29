//! Policy: what each CSI call means, in terms of pools and the machine.
//!
//! The engine is synchronous and sees storage and the machine only through the traits of
//! `orlop-model`. Every operation takes the lock of what it changes or answers "busy"; every
//! step says what must hold afterwards, so that a call can be repeated after any interruption.

mod capacity;
mod create;
mod delete;
mod difference;
mod encryption;
mod engine;
mod expand;
mod figures;
mod group_snapshot;
mod health;
mod inline;
mod list;
mod locks;
mod lost_writes;
mod metadata;
mod modify;
mod mount_group;
mod name_hold;
mod node_publish;
mod node_stage;
mod node_stats;
mod node_volume_count;
mod overview;
mod placement;
mod pool_breaker;
mod publish;
mod query_threads;
mod quiesce;
mod reclaim;
mod recover;
pub mod request;
mod sharing;
mod snapshot;
mod stage_failures;
mod staged_watch;
mod validate;
mod volume_group;
mod volume_health;
mod without_pool;

pub use engine::{AbsentPool, Engine, EngineSettings};
pub use figures::{ObjectCounts, PoolFigures, PoolState, StagedIo, VolumeIo, VolumeUsage};
pub use health::HealthReport;
pub use locks::WaiterLimit;
pub use name_hold::{NameHold, PoolSummary};
pub use overview::{
    Copies, ListedSnapshot, ListedVolume, ListedVolumeCopy, VolumeListing, VolumeState,
};
pub use pool_breaker::PoolCall;
