//! How long programs that a process started took, from the kernel's process accounting (`struct acct_v3`).

use std::fs::File;
use std::io::Read;
use std::path::Path;

use orlop_sys::tool;

const RECORD: usize = 64;
/// Of a second, in `ac_etime`.
const TICKS: f64 = 100.0;

/// Turned off when dropped.
pub(super) struct Accounting {
    file: File,
}

impl Accounting {
    pub(super) fn to(path: &Path) -> Self {
        File::create(path).expect("make the file of process accounting");
        tool::run("accton", [path]).expect("turn process accounting on");
        Self { file: File::open(path).expect("open the file of process accounting") }
    }

    /// Seconds that all processes took that have ended since the last call, were started by `parent`, and are of this
    /// program.
    pub(super) fn take(&mut self, parent: u32, program: &str) -> f64 {
        let mut records = Vec::new();
        self.file.read_to_end(&mut records).expect("read the process accounting");
        let took = |record: &[u8; RECORD]| {
            let comm = record[48..].split(|byte| *byte == 0).next().unwrap_or_default();
            let is_child = record[20..24] == parent.to_ne_bytes();
            let ticks = f32::from_ne_bytes([record[28], record[29], record[30], record[31]]);
            (is_child && comm == program.as_bytes()).then(|| f64::from(ticks) / TICKS)
        };
        let (records, rest) = records.as_chunks::<RECORD>();
        assert!(rest.is_empty(), "half a record of process accounting");
        records.iter().filter_map(took).sum()
    }
}

impl Drop for Accounting {
    fn drop(&mut self) {
        let _ = tool::run("accton", ["off"]);
    }
}
