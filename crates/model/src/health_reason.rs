//! Why a volume, or what it is on, is not well: one word for programs, the same wherever it is reported.

use crate::error::Error;

/// What a problem means to those who use the volume. The worst is the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It can be used, with less than was promised.
    Degraded,
    /// It cannot be used: anywhere if the controller says so, on a node if that does.
    Inaccessible,
    /// What was written is gone, or most likely so.
    DataLoss,
}

/// docs/operations.md has the same table, with what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HealthReason {
    BackingFileMissing,
    /// Another file has its name, or something that is no file.
    BackingFileReplaced,
    /// Shorter than the record promises.
    BackingFileTruncated,
    /// A managed pool's image was removed or replaced while it was attached.
    PoolImageLost,
    /// The kernel could not write back what the workload wrote.
    WritesLost,
    RecordDamaged,
    /// From before an expansion: there is data past the end that it names.
    RecordOutdated,
    /// Absent, replaced, unmounted, or it does not answer.
    PoolUnreachable,
    /// It answers, but with an error.
    PoolErrors,
    /// The volume was not staged, although a caller tried.
    StageFailed,
    DeviceMissing,
    /// The device is there and does not do what it should.
    DeviceErrors,
    MountMissing,
    FilesystemShutDown,
    FilesystemReadOnly,
    /// It goes on, and has counted errors.
    FilesystemErrors,
    PoolReadOnly,
    PoolFull,
    /// It works, with fewer copies of its data than it was made with.
    RedundancyLost,
    /// A program that Orlop needs on this node.
    ToolMissing,
}

impl HealthReason {
    pub const ALL: [Self; 20] = [
        Self::BackingFileMissing,
        Self::BackingFileReplaced,
        Self::BackingFileTruncated,
        Self::PoolImageLost,
        Self::WritesLost,
        Self::RecordDamaged,
        Self::RecordOutdated,
        Self::PoolUnreachable,
        Self::PoolErrors,
        Self::StageFailed,
        Self::DeviceMissing,
        Self::DeviceErrors,
        Self::MountMissing,
        Self::FilesystemShutDown,
        Self::FilesystemReadOnly,
        Self::FilesystemErrors,
        Self::PoolReadOnly,
        Self::PoolFull,
        Self::RedundancyLost,
        Self::ToolMissing,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::BackingFileMissing => "BackingFileMissing",
            Self::BackingFileReplaced => "BackingFileReplaced",
            Self::BackingFileTruncated => "BackingFileTruncated",
            Self::PoolImageLost => "PoolImageLost",
            Self::WritesLost => "WritesLost",
            Self::RecordDamaged => "RecordDamaged",
            Self::RecordOutdated => "RecordOutdated",
            Self::PoolUnreachable => "PoolUnreachable",
            Self::PoolErrors => "PoolErrors",
            Self::StageFailed => "StageFailed",
            Self::DeviceMissing => "DeviceMissing",
            Self::DeviceErrors => "DeviceErrors",
            Self::MountMissing => "MountMissing",
            Self::FilesystemShutDown => "FilesystemShutDown",
            Self::FilesystemReadOnly => "FilesystemReadOnly",
            Self::FilesystemErrors => "FilesystemErrors",
            Self::PoolReadOnly => "PoolReadOnly",
            Self::PoolFull => "PoolFull",
            Self::RedundancyLost => "RedundancyLost",
            Self::ToolMissing => "ToolMissing",
        }
    }

    pub fn severity(self) -> Severity {
        match self {
            Self::BackingFileMissing
            | Self::BackingFileReplaced
            | Self::BackingFileTruncated
            | Self::PoolImageLost
            | Self::WritesLost => Severity::DataLoss,
            Self::RecordDamaged
            | Self::RecordOutdated
            | Self::PoolUnreachable
            | Self::PoolErrors
            | Self::StageFailed
            | Self::DeviceMissing
            | Self::DeviceErrors
            | Self::MountMissing
            | Self::FilesystemShutDown => Severity::Inaccessible,
            Self::FilesystemReadOnly
            | Self::FilesystemErrors
            | Self::PoolReadOnly
            | Self::PoolFull
            | Self::RedundancyLost
            | Self::ToolMissing => Severity::Degraded,
        }
    }

    /// Of a check of a volume or a pool that failed with this error.
    pub fn of(error: &Error) -> Self {
        match error {
            Error::Damaged { .. } => Self::RecordDamaged,
            Error::NotServed { .. }
            | Error::Starting
            | Error::Stopping
            | Error::Unreachable { .. } => Self::PoolUnreachable,
            Error::Exhausted(_) => Self::PoolFull,
            Error::Invalid { .. }
            | Error::NoSuchVolume(_)
            | Error::NoSuchSnapshot(_)
            | Error::NoSuchGroupSnapshot(_)
            | Error::NoSuchVolumeGroup(_)
            | Error::NoSuchNode(_)
            | Error::NotAtPath { .. }
            | Error::NotOnNode(_)
            | Error::Conflict { .. }
            | Error::Busy { .. }
            | Error::StaleToken
            | Error::OutOfRange(_)
            | Error::Precondition(_)
            | Error::Unauthenticated(_)
            | Error::NotOffered(..)
            | Error::Failed { .. } => Self::PoolErrors,
        }
    }
}

#[cfg(test)]
mod tests;
