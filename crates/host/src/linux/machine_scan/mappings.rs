//! The doctor's findings about mappings of encrypted volumes that no node record names.

use orlop_model::{DeviceAccess, Finding, LabelledDevice, Result, VolumeId};
use orlop_sys::device_mapper::MappedDevice;

use super::super::encryption::{all_mappings, close, described, find};
use super::super::mounting::mounts_of_device;
use super::super::run_files::NodeRecords;

const BOTH: [DeviceAccess; 2] = [DeviceAccess::ReadWrite, DeviceAccess::ReadOnly];

/// As workloads use it: with the mapping in the place of the device that it is on.
pub(super) fn as_used(labelled: &LabelledDevice) -> Result<LabelledDevice> {
    let mapping = mapping_on(labelled)?;
    let device = mapping.map_or_else(|| labelled.device.clone(), |mapping| described(&mapping));
    Ok(LabelledDevice { device, ..labelled.clone() })
}

/// Before the device is detached.
pub(super) fn ensure_closed(labelled: &LabelledDevice) -> Result<()> {
    mapping_on(labelled)?.map_or(Ok(()), |mapping| close(&mapping))
}

fn mapping_on(labelled: &LabelledDevice) -> Result<Option<MappedDevice>> {
    for access in BOTH {
        if let Some(mapping) = find(&labelled.volume, access, &labelled.device)? {
            return Ok(Some(mapping));
        }
    }
    Ok(None)
}

/// Mappings of volumes that `is_ours`, of pools whose devices are not listed by the pool.
pub(super) fn judge(
    records: &NodeRecords,
    is_ours: impl Fn(&VolumeId) -> bool,
) -> Result<Vec<Finding>> {
    const CODE: &str = "stray-mapping";
    let mut findings = Vec::new();
    for (id, _, mapping) in all_mappings()? {
        let has_record = || records.read(&id).map_or(true, |record| !record.is_empty());
        if !is_ours(&id) || has_record() {
            continue;
        }
        let subject = format!("volume {id}");
        let path = mapping.path().display().to_string();
        let problem = format!("its encryption is open as {path}, but no node record names it");
        let mounts = mounts_of_device(&described(&mapping))?;
        findings.push(match mounts.first() {
            Some(entry) => Finding::by_hand(
                CODE,
                subject,
                problem,
                format!("unmount {} first", entry.mount_point.display()),
            ),
            None => {
                Finding::repairable(CODE, subject, problem, "close it", move || close(&mapping))
            }
        });
    }
    Ok(findings)
}
