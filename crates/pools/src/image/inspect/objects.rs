//! Volumes and snapshots: does each have a record and the data that it speaks of?

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use orlop_model::{BehindDevice, Finding, LabelledDevice, NodeId, Result, VolumeRecord};
use orlop_sys::file::{self, FileAccess};
use rustix::io::Errno;

use super::super::attach::lost_data::steps_to_save;
use super::super::catalogue::StoredRecord;
use super::super::failure::cannot;
use super::super::layout::ObjectDir;
use super::{InspectedPool, entries, name_of};
use crate::recorded::{RecordFailure, read_record, to_text};

impl InspectedPool {
    /// Returns the records that can be read.
    pub(super) fn inspect_objects<R: StoredRecord>(&mut self, directory: &Path) -> Result<Vec<R>> {
        let mut records = Vec::new();
        for path in entries(directory)? {
            let name = name_of(&path);
            match name.parse::<R::Id>() {
                Ok(id) if *R::pool_of(&id) == self.id => {
                    records.extend(self.inspect_object::<R>(&id, &ObjectDir::new(path))?);
                }
                Ok(id) => self.found(Finding::by_hand(
                    "foreign",
                    format!("{} {id}", R::KIND),
                    format!(
                        "it is of pool {}, but orlop.pool says that this is pool {}",
                        R::pool_of(&id),
                        self.id
                    ),
                    format!(
                        "if orlop.pool was replaced, restore it, otherwise move {} to its own pool",
                        path.display()
                    ),
                )),
                Err(_) => self.found_astray(
                    "stray",
                    path.display().to_string(),
                    format!("it is not named after a {}", R::KIND),
                    path,
                ),
            }
        }
        Ok(records)
    }

    fn inspect_object<R: StoredRecord>(
        &mut self,
        id: &R::Id,
        home: &ObjectDir,
    ) -> Result<Option<R>> {
        let subject = format!("{} {id}", R::KIND);
        let looking = || format!("inspect {}", home.directory().display());
        if is_no_directory(home.directory()) {
            self.found(Finding::by_hand(
                "record-damaged",
                subject,
                "it is not a directory, so it answers DATA_LOSS",
                format!(
                    "restore the {} from a backup, or move {} out of the pool",
                    R::KIND,
                    home.directory().display()
                ),
            ));
            return Ok(None);
        }
        if !home.record().try_exists().map_err(cannot(looking))? {
            if home.directory().try_exists().map_err(cannot(looking))? {
                self.found_without_record(subject, home);
            }
            return Ok(None);
        }
        let record = match read_record::<R>(id, &home.record()) {
            Ok(record) => record,
            // Deleted while it was looked at.
            Err(_) if !home.record().try_exists().map_err(cannot(looking))? => return Ok(None),
            Err(RecordFailure::Unread(error)) => return Err(cannot(looking)(error)),
            Err(RecordFailure::Damaged(reason)) => {
                self.found(Finding::by_hand(
                    "record-damaged",
                    subject,
                    format!("{reason}, so it answers DATA_LOSS"),
                    format!(
                        "its data is untouched; restore {} from a backup, or write it again",
                        home.record().display()
                    ),
                ));
                return Ok(None);
            }
        };
        self.inspect_data(&record, subject, home)?;
        Ok(Some(record))
    }

    fn found_without_record(&mut self, subject: String, home: &ObjectDir) {
        let problem = "there is data without a record, so it takes space and no call can reach it";
        let path = home.directory().to_owned();
        match self.devices_on(home).first() {
            Some(device) => self.found(Finding::by_hand(
                "data-without-record",
                subject,
                problem,
                format!(
                    "{} is still attached to it; unmount and detach that first",
                    device.display()
                ),
            )),
            None => {
                self.found_astray("data-without-record", subject, problem.to_owned(), path);
            }
        }
    }

    /// Also those elsewhere: the data may have been moved there. The one that is written to comes first.
    fn devices_on(&self, home: &ObjectDir) -> Vec<PathBuf> {
        let name = name_of(home.directory());
        let is_its = |device: &&LabelledDevice| device.volume.to_string() == name;
        let mut found: Vec<&LabelledDevice> = self.devices.iter().filter(is_its).collect();
        found.sort_by_key(|device| device.label != name);
        // Another daemon may serve a copy of the pool, and use the volume there.
        match found.iter().any(|device| device.behind != BehindDevice::Elsewhere) {
            true => found.retain(|device| device.behind != BehindDevice::Elsewhere),
            false => found.truncate(1),
        }
        found.into_iter().map(|device| device.device.path.clone()).collect()
    }

    fn inspect_data<R: StoredRecord>(
        &mut self,
        record: &R,
        subject: String,
        home: &ObjectDir,
    ) -> Result<()> {
        let data = home.data();
        let length = match fs::symlink_metadata(&data) {
            Ok(there) if there.is_file() => there.len(),
            Ok(_) => {
                self.found_without_data(subject, "its data is not a file", home);
                return Ok(());
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // Unless it was deleted while it was looked at.
                if home.record().exists() {
                    self.found_without_data(subject, "its data is missing", home);
                }
                return Ok(());
            }
            Err(error) => {
                return Err(cannot(|| format!("inspect {}", data.display()))(error));
            }
        };
        let promised = record.length();
        if length < promised {
            self.found(Finding::by_hand(
                "data-short",
                subject,
                format!("its data has {length} bytes, its record says {promised}"),
                format!(
                    "something truncated {}; restore it from a backup (extending it would put zeroes \
                     where data was)",
                    data.display()
                ),
            ));
        } else if length > promised {
            self.found_too_long(record, subject, home, length)?;
        }
        Ok(())
    }

    fn found_without_data(&mut self, subject: String, problem: &str, home: &ObjectDir) {
        const CODE: &str = "data-missing";
        let problem = format!("{problem}, so it answers DATA_LOSS");
        let devices = self.devices_on(home);
        let Some(device) = devices.first() else {
            return self.found_astray(CODE, subject, problem, home.directory().to_owned());
        };
        let advice = format!(
            "{} still holds the lost file, and is not detached by any call: stop the workload, save the data \
             with {}, and unstage and stage the volume again",
            device.display(),
            steps_to_save(&devices, &home.data())
        );
        self.found(Finding::by_hand(CODE, subject, problem, advice));
    }

    /// Data grows before its record does, so a crash leaves it longer than the record says. The part past
    /// that end was never offered to a workload; if it holds data anyway, it is not truncated.
    fn found_too_long<R: StoredRecord>(
        &mut self,
        record: &R,
        subject: String,
        home: &ObjectDir,
        length: u64,
    ) -> Result<()> {
        let (data, promised) = (home.data(), record.length());
        let opening = || format!("open {}", data.display());
        let file = file::open_regular(&data, FileAccess::Read).map_err(cannot(opening))?;
        let problem = format!("its data has {length} bytes, its record says {promised}");
        let holds_data = file::has_data_from(&file, promised).map_err(cannot(opening))?;
        // A daemon that serves the pool may be growing it, or have grown it since the record was read.
        if self.in_use && !(holds_data && is_recorded_still(record, home)) {
            return Ok(());
        }
        if holds_data {
            self.found(Finding::by_hand(
                "data-long",
                subject,
                format!("{problem}, and there is data past that end"),
                format!(
                    "the record is older than the data: expand the volume to {length} bytes, or \
                     restore its current record"
                ),
            ));
            return Ok(());
        }
        let path = data;
        let perform = move || {
            let truncating = || format!("truncate {}", path.display());
            let file =
                file::open_regular(&path, FileAccess::ReadWrite).map_err(cannot(truncating))?;
            file::set_length(&file, promised).map_err(cannot(truncating))?;
            file::sync_file(&file).map_err(cannot(truncating))
        };
        self.found(Finding::repairable(
            "data-long",
            subject,
            format!("{problem}; an expansion was interrupted and nothing was written there"),
            "truncate it to what the record says",
            perform,
        ));
        Ok(())
    }

    /// The pool is on this machine, so no other node can use its volumes. While a volume of
    /// it is attached here, it has not come from another machine either: then the node id is wrong.
    pub(super) fn inspect_publications(&mut self, volumes: &[VolumeRecord], node: &NodeId) {
        for record in volumes {
            let others: Vec<&str> =
                record.published.keys().filter(|id| *id != node).map(NodeId::as_str).collect();
            if others.is_empty() {
                continue;
            }
            let others = others.join(", ");
            // A device on another filesystem may belong to a copy of the pool, with another node id.
            let is_in_it = |it: &&LabelledDevice| it.behind != BehindDevice::Elsewhere;
            if let Some(device) = self.devices.iter().find(is_in_it) {
                let device = device.device.path.display();
                self.found(Finding::by_hand(
                    "foreign-publication",
                    format!("volume {}", record.id),
                    format!(
                        "it is published to {others}, not to {node}, and {device} shows that the \
                         pool is in use on this machine"
                    ),
                    "run the doctor with the ORLOP_NODE_ID of the daemon that served the pool; if \
                     that was on a machine that is gone, unstage what is in use first",
                ));
                continue;
            }
            let home = ObjectDir::new(self.layout.volumes().join(record.id.to_string()));
            let mut kept = record.clone();
            kept.published.retain(|id, _| id == node);
            let perform = move || {
                let text = to_text(&kept)?;
                file::replace_file(home.directory(), ObjectDir::RECORD, &text)
                    .map_err(cannot(|| format!("save the record of volume {}", kept.id)))
            };
            self.found(Finding::repairable(
                "foreign-publication",
                format!("volume {}", record.id),
                format!("it is published to {others}, but the pool is on {node}"),
                "take that publication out of its record",
                perform,
            ));
        }
    }
}

/// A file, or a link that leads in a circle. Other errors are left to the code that reads the directory.
fn is_no_directory(path: &Path) -> bool {
    match fs::metadata(path) {
        Ok(there) => !there.is_dir(),
        Err(error) => Errno::from_io_error(&error) == Some(Errno::LOOP),
    }
}

fn is_recorded_still<R: StoredRecord>(record: &R, home: &ObjectDir) -> bool {
    read_record::<R>(record.id(), &home.record()).is_ok_and(|now| now.length() == record.length())
}
