//! `volume_mount_group`: whom the files of a mounted volume belong to.
//!
//! The group is a property of the files, not of a mount, so a volume has one at a time. Publishing
//! with another one gives the files to it, as an orchestrator itself would; but not while they are
//! another workload's, which could not write any more.

use orlop_model::{AccessType, Error, Publication, Result, Stage, VolumeCapability, VolumeRecord};

use crate::engine::Engine;

fn group_of(capability: &VolumeCapability) -> Option<u32> {
    match &capability.access {
        AccessType::Block => None,
        AccessType::Mount(mount) => mount.group,
    }
}

/// A publication whose group is another than `group`. One without any takes the files as they are.
fn other_group(live: &[Publication], group: u32) -> Option<(&Publication, u32)> {
    live.iter().find_map(|publication| {
        let other = group_of(&publication.capability)?;
        (other != group).then_some((publication, other))
    })
}

pub(crate) fn is_published_for(live: &[Publication], wanted: &VolumeCapability) -> bool {
    let group = group_of(wanted);
    group.is_some() && live.iter().any(|publication| group_of(&publication.capability) == group)
}

pub(crate) fn check_group(
    record: &VolumeRecord,
    live: &[Publication],
    wanted: &Publication,
) -> Result<()> {
    let Some(group) = group_of(&wanted.capability) else {
        return Ok(());
    };
    match other_group(live, group) {
        None => Ok(()),
        Some((other, theirs)) => Err(Error::precondition(format!(
            "cannot publish volume {} for group {group}: it is published at {} for group {theirs}, \
             and its files belong to one group at a time; give both workloads the same group \
             (fsGroup), or unpublish the other one first",
            record.id, other.target
        ))),
    }
}

impl Engine {
    /// What is staged read-only keeps the groups that its files have. Where the files are the group's
    /// already, this is a look at the root directory.
    pub(crate) fn ensure_group_of(&self, stage: &Stage, wanted: &VolumeCapability) -> Result<()> {
        match group_of(wanted) {
            Some(group) if !stage.read_only => self.host().ensure_group(&stage.path, group),
            Some(_) | None => Ok(()),
        }
    }

    /// At a repeated stage: another workload may have been given the files since.
    pub(crate) fn ensure_group_unless_given(
        &self,
        stage: &Stage,
        live: &[Publication],
    ) -> Result<()> {
        match group_of(&stage.capability) {
            Some(group) if other_group(live, group).is_none() => {
                self.ensure_group_of(stage, &stage.capability)
            }
            Some(_) | None => Ok(()),
        }
    }
}
