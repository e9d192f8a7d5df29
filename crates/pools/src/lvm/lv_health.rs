//! What LVM reports to be wrong with a logical volume, as a problem of what is on it.

use orlop_model::{HealthReason, Problem};

use super::layout::GroupName;
use super::report::Lv;

/// `None`: LVM knows nothing bad of it.
pub(super) fn problem_of_lv(group: &GroupName, lv: &Lv) -> Option<Problem> {
    let path = group.lv(&lv.name);
    let problem = |reason, text: String| Some(Problem::new(reason, text));
    match lv.health.as_str() {
        "" | "mismatches exist" | "writemostly" => None,
        // A volume without copies or parity is not active any more, or its device gives errors.
        "partial" if lv.is_redundant() => problem(
            HealthReason::RedundancyLost,
            format!(
                "a disk of {path} is missing: its data is there, without the copy or parity on that disk; attach the \
                 disk again, or add another with `vgextend` and run `lvconvert --repair {path}`: `pvs` shows which is missing"
            ),
        ),
        "partial" => problem(
            HealthReason::DeviceErrors,
            format!(
                "a disk of {path} is missing, and with it a part of its data; attach the disk: `pvs` shows which"
            ),
        ),
        "refresh needed" => problem(
            HealthReason::RedundancyLost,
            format!(
                "a disk of {path} failed for a time: its data is there, and what that disk has is old; look for its \
                 errors in the kernel log, then run `lvchange --refresh {path}`, or `lvconvert --repair {path}` to \
                 use another disk"
            ),
        ),
        "failed" => problem(
            HealthReason::DeviceErrors,
            format!(
                "{path} has failed: the kernel log says why; if its thin pool has, see 'Metadata check and repair' \
                 in lvmthin(7)"
            ),
        ),
        other => problem(HealthReason::DeviceErrors, format!("LVM reports of {path}: {other}")),
    }
}

#[cfg(test)]
mod tests;
