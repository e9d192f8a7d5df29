//! Whether the data of an object is as its record says.

use orlop_model::{
    Error, HealthReason, Problem, Reason, Result, SnapshotRecord, VolumeId, VolumeRecord,
};
use orlop_sys::file::{self, FileAccess};

use super::{ObjectIndex, StoredRecord};
use crate::image::failure::cannot;

/// Is the data there, and as long as the record says? The error tells what is wrong with it.
pub(in crate::image) fn check_data<R: StoredRecord>(
    index: &ObjectIndex<R>,
    record: &R,
) -> Result<()> {
    check_length(index, record.id(), record.length()).map(drop)
}

/// The same; returns how long it is.
fn check_length<R: StoredRecord>(index: &ObjectIndex<R>, id: &R::Id, length: u64) -> Result<u64> {
    data_length(index, id, length)?.map_err(|problem| index.damaged(id, &problem.message))
}

fn data_length<R: StoredRecord>(
    index: &ObjectIndex<R>,
    id: &R::Id,
    length: u64,
) -> Result<std::result::Result<u64, Problem>> {
    let home = index.directory_of(id);
    let problem = |reason, message: &str| Ok(Err(Problem::new(reason, message)));
    match std::fs::symlink_metadata(home.data()) {
        Ok(data) if !data.is_file() => {
            problem(HealthReason::BackingFileReplaced, "its data is not a file")
        }
        Ok(data) if data.len() < length => problem(
            HealthReason::BackingFileTruncated,
            &format!("its data has {} bytes, its record says {length}", data.len()),
        ),
        Ok(data) => Ok(Ok(data.len())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let what = if home.directory().exists() { "data" } else { "directory" };
            problem(HealthReason::BackingFileMissing, &format!("its {what} is missing"))
        }
        Err(error) => {
            Err(Error::failed(format!("inspect the data of {} {id}", R::KIND), Reason::of(error)))
        }
    }
}

/// What is wrong with the data of a volume, if something is.
pub(in crate::image) fn problem_of_data(
    index: &ObjectIndex<VolumeRecord>,
    id: &VolumeId,
    length: u64,
) -> Result<Option<Problem>> {
    match data_length(index, id, length)? {
        Err(problem) => Ok(Some(problem)),
        Ok(present) => {
            let outdated = outdated(index, id, length, present)?;
            Ok(outdated.map(|text| Problem::new(HealthReason::RecordOutdated, text)))
        }
    }
}

/// As [`problem_of_data`]. Nothing is ever written to a snapshot, so it cannot be longer either.
pub(in crate::image) fn problem_of_snapshot(
    index: &ObjectIndex<SnapshotRecord>,
    record: &SnapshotRecord,
) -> Result<Option<Problem>> {
    Ok(data_length(index, &record.id, record.size_bytes)?.err())
}

/// What the data takes of the pool now.
pub(in crate::image) fn used_bytes<R: StoredRecord>(
    index: &ObjectIndex<R>,
    id: &R::Id,
) -> Result<u64> {
    check_data(index, &index.require(id)?)?;
    file::allocated_bytes(&index.directory_of(id).data())
        .map_err(cannot(|| format!("inspect {} {id}", R::KIND)))
}

/// As [`check_length`], and is the record as new as the data? An interrupted growth leaves data that is longer than the
/// record says, but past that end nothing was ever written. If something was, the record is that of an earlier time: a
/// device of that length would hide a part of the data, and a copy would lack it.
pub(in crate::image) fn check_current(
    index: &ObjectIndex<VolumeRecord>,
    id: &VolumeId,
    length: u64,
) -> Result<()> {
    let present = check_length(index, id, length)?;
    match outdated(index, id, length, present)? {
        None => Ok(()),
        Some(text) => Err(Error::precondition(text)),
    }
}

/// Why the volume must not be used, if its record is older than its data.
fn outdated(
    index: &ObjectIndex<VolumeRecord>,
    id: &VolumeId,
    length: u64,
    present: u64,
) -> Result<Option<String>> {
    if present <= length {
        return Ok(None);
    }
    let inspecting = || format!("inspect the data of volume {id}");
    let data = file::open_regular(&index.directory_of(id).data(), FileAccess::Read)
        .map_err(cannot(inspecting))?;
    let has_more = file::has_data_from(&data, length).map_err(cannot(inspecting))?;
    Ok(has_more.then(|| {
        format!(
            "cannot use volume {id}: its record is outdated; expand it to {present} bytes, or restore \
             its current record (this one says {length} bytes, and there is data past that end)"
        )
    }))
}
