//! What can be asked of the machine, by name.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    CheckHealth,
    DrawUuid,
    Probe,
    Format,
    CheckFilesystem,
    RenewUuid,
    CheckBeforeGrowth,
    RepairGrowth,
    GrowUnmounted,
    GrowMounted,
    LookUp,
    Mount,
    BindDirectory,
    BindDevice,
    Unmount,
    RemoveTarget,
    SetGroup,
    MeasureUsage,
    MeasureDevice,
    SyncFilesystem,
    Freeze,
    Thaw,
    Trim,
    SyncDevice,
    Detach,
    CheckEncryption,
    Encrypt,
    CheckKey,
    Open,
    Close,
    GrowMapping,
    RotateKey,
    CheckLimits,
    SetLimits,
    ReadRecord,
    SaveRecord,
    ListRecords,
}

/// Something that was done: to a device (`7:1`), a path or a volume, as `on` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    pub op: Op,
    pub on: String,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.op, self.on)
    }
}
