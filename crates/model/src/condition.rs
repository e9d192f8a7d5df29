//! A volume's condition and fill level.

/// A verdict for people (AL-11: never without a text).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub abnormal: bool,
    pub message: String,
}

impl Condition {
    pub fn healthy(message: impl Into<String>) -> Self {
        Self { abnormal: false, message: message.into() }
    }

    pub fn abnormal(message: impl Into<String>) -> Self {
        Self { abnormal: true, message: message.into() }
    }
}

/// How full a mounted filesystem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub total_bytes: u64,
    pub available_bytes: u64,
    /// Filesystems without a fixed number of inodes (btrfs) report 0 in all.
    pub total_inodes: u64,
    pub free_inodes: u64,
    /// It writes no more after an error, whatever its mount says.
    pub has_given_up: bool,
}
