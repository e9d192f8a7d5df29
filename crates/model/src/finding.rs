//! What no longer belongs together, and what would put it right.

use crate::device::Device;
use crate::error::Result;
use crate::health_reason::HealthReason;
use crate::id::VolumeId;

/// One thing that is wrong, in words for the operator who decides about it.
pub struct Finding {
    /// A fixed word for programs, such as `data-missing`.
    pub code: &'static str,
    /// What it is about: a volume, a device, a path.
    pub subject: String,
    pub problem: String,
    pub remedy: Remedy,
}

pub enum Remedy {
    /// Can be put right without losing anything that was promised.
    Repair(Repair),
    /// What a person has to do or decide.
    ByHand(String),
}

/// May be repeated, also after a crash at any instruction in it.
pub struct Repair {
    /// Completes "this would".
    pub act: String,
    perform: Box<dyn FnOnce() -> Result<()> + Send>,
}

impl Repair {
    pub fn perform(self) -> Result<()> {
        (self.perform)()
    }
}

impl Finding {
    pub fn repairable(
        code: &'static str,
        subject: impl Into<String>,
        problem: impl Into<String>,
        act: impl Into<String>,
        perform: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Self {
        let repair = Repair { act: act.into(), perform: Box::new(perform) };
        Self {
            code,
            subject: subject.into(),
            problem: problem.into(),
            remedy: Remedy::Repair(repair),
        }
    }

    pub fn by_hand(
        code: &'static str,
        subject: impl Into<String>,
        problem: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            code,
            subject: subject.into(),
            problem: problem.into(),
            remedy: Remedy::ByHand(advice.into()),
        }
    }

    /// How the health calls name the same, if they tell of it.
    pub fn health_reason(&self) -> Option<HealthReason> {
        match self.code {
            "data-missing" => Some(HealthReason::BackingFileMissing),
            "data-short" => Some(HealthReason::BackingFileTruncated),
            "image-lost" => Some(HealthReason::PoolImageLost),
            "record-damaged" => Some(HealthReason::RecordDamaged),
            "read-only" => Some(HealthReason::PoolReadOnly),
            "full" => Some(HealthReason::PoolFull),
            "mount-missing" => Some(HealthReason::MountMissing),
            "device-missing" => Some(HealthReason::DeviceMissing),
            "filesystem-read-only" => Some(HealthReason::FilesystemReadOnly),
            "filesystem-errors" => Some(HealthReason::FilesystemErrors),
            "writes-lost" => Some(HealthReason::WritesLost),
            _ => None,
        }
    }

    /// Beside a daemon, which may be in the middle of a call, nothing is put right.
    #[must_use]
    pub fn once_unused(mut self) -> Self {
        if let Remedy::Repair(repair) = self.remedy {
            let advice = format!("stop the daemon; then a repair can {}", repair.act);
            self.remedy = Remedy::ByHand(advice);
        }
        self
    }

    /// Is it about the same thing? A pool in use is inspected twice, and only what both find is reported.
    pub fn is_like(&self, other: &Self) -> bool {
        (self.code, &self.subject) == (other.code, &other.subject)
    }
}

/// A device on this machine that carries the label of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelledDevice {
    pub volume: VolumeId,
    pub label: String,
    pub device: Device,
    pub behind: BehindDevice,
}

/// What the pool has of a volume that a device claims to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BehindDevice {
    /// The volume's data.
    Volume,
    /// A file that has no name any more, or another one, whether or not the pool knows the volume. It
    /// may be the only copy.
    LostData,
    /// A file of a volume that was deleted.
    Nothing,
    /// A file outside of the pool, as in a copy of it that another daemon serves; or the volume's data, if
    /// it was moved or the pool replaced while a workload used it.
    Elsewhere,
}
