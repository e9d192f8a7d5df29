//! The doctor's inspection of a pool: what in it contradicts its records?
//!
//! It only looks. Others use the pool at the same time, and what is left half-done is finished by
//! the garbage collection of any controller, which knows how to do that beside them.

use orlop_model::{Error, Finding, HealthReason, PoolId, Result, VolumeId, VolumeRecord};
use orlop_sys::ceph::Access;

use super::RbdPool;
use super::fencing::registered_writers;
use super::garbage::{HOUR, obstacle, unfinished_removals};
use super::image_state::NamedState;
use super::images::{KnownImage, NamedImage, trashed_by_hand};
use super::layout::{RECORDS, kept_prefix};
use super::open::RbdPoolConfig;

impl RbdPool {
    /// Neither makes a pool nor announces a node, and collects no garbage.
    pub fn inspect(config: &RbdPoolConfig) -> Result<(PoolId, Vec<Finding>)> {
        let quiet = RbdPoolConfig {
            create: false,
            collects_garbage: false,
            serves_node: false,
            ..config.clone()
        };
        let pool = Self::open(&quiet)?;
        let mut findings = Vec::new();
        pool.inspect_volumes(&mut findings)?;
        pool.inspect_kept(&mut findings)?;
        pool.inspect_trash(&mut findings)?;
        if config.serves_node {
            pool.inspect_exports(&mut findings)?;
        }
        Ok((pool.info.id.clone(), findings))
    }

    fn inspect_volumes(&self, findings: &mut Vec<Finding>) -> Result<()> {
        let listing = || format!("list the volumes of pool {}", self.info.name);
        for (id, image_id) in self.images.all_named(listing)? {
            let subject = format!("volume {id}");
            match self.images.find(&id)? {
                Some(NamedImage { state: NamedState::Deleted, .. }) => {
                    let problem = "it is deleted, but its image is not in the trash yet";
                    findings.push(for_garbage_collection(subject, problem));
                }
                Some(NamedImage { state: NamedState::Draft, .. }) => {
                    self.inspect_draft(&id, &image_id, findings)?;
                }
                Some(NamedImage { state: NamedState::Whole(_), .. }) => {
                    match self.images.known(&id) {
                        Ok(Some(known)) => {
                            self.inspect_length(&known, findings)?;
                            self.inspect_nodes(&known.record, &image_id, findings)?;
                            self.inspect_snapshots(&subject, &image_id, findings)?;
                        }
                        Ok(None) => {}
                        Err(error @ Error::Damaged { .. }) => findings.push(Finding::by_hand(
                            "record-damaged",
                            subject,
                            error.to_string(),
                            "its data is untouched; restore the record among the image's metadata",
                        )),
                        Err(error) => return Err(error),
                    }
                }
                None => {}
            }
        }
        Ok(())
    }

    fn inspect_length(&self, known: &KnownImage, findings: &mut Vec<Finding>) -> Result<()> {
        let looking = || format!("inspect volume {}", known.record.id);
        let bytes = self.session.ask(looking, |io| io.image_size(&known.image_id))?;
        let Some(problem) = self.images.length_problem(known, bytes)? else { return Ok(()) };
        let code = match problem.reason == HealthReason::BackingFileTruncated {
            true => "data-short",
            false => "data-long",
        };
        findings.push(Finding::by_hand(
            code,
            format!("volume {}", known.record.id),
            problem.message,
            "do what the problem says; until then the volume is neither staged nor copied",
        ));
        Ok(())
    }

    fn inspect_draft(
        &self,
        id: &VolumeId,
        image_id: &str,
        findings: &mut Vec<Finding>,
    ) -> Result<()> {
        let subject = format!("volume {id}");
        match self.garbage.check_is_draft(id, image_id) {
            Ok(()) if self.is_abandoned(image_id)? => {
                let problem = "an interrupted call left it half-made";
                findings.push(for_garbage_collection(subject, problem));
            }
            Ok(()) | Err(Error::Busy { .. }) => {}
            Err(Error::Damaged { reason, .. }) => findings.push(Finding::by_hand(
                "unrecorded-image",
                subject,
                reason,
                "do what the problem says; until then no daemon changes the image or makes the volume",
            )),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// No call needs an hour to make an image.
    fn is_abandoned(&self, image_id: &str) -> Result<bool> {
        let created = self.images.created(image_id)?;
        Ok(created.is_some_and(|created| created.elapsed().is_ok_and(|age| age > HOUR)))
    }

    fn inspect_nodes(
        &self,
        record: &VolumeRecord,
        image_id: &str,
        findings: &mut Vec<Finding>,
    ) -> Result<()> {
        for node in record.published.keys() {
            if !self.nodes.knows(node)? {
                findings.push(Finding::by_hand(
                    "foreign-publication",
                    format!("volume {}", record.id),
                    format!("it is published to {node}, which never reached this pool"),
                    "unpublish it there (ControllerUnpublishVolume)",
                ));
            }
        }
        for node in registered_writers(&self.session, &record.id, image_id)? {
            if !record.published.contains_key(&node) && !record.ephemeral {
                findings.push(Finding::by_hand(
                    "unknown-writer",
                    format!("volume {}", record.id),
                    format!("a client of {node} may write to it, but it is not published there"),
                    "unpublish it from that node (ControllerUnpublishVolume), which fences it",
                ));
            }
        }
        Ok(())
    }

    fn inspect_kept(&self, findings: &mut Vec<Finding>) -> Result<()> {
        let listing = || format!("list the kept images of pool {}", self.info.name);
        for (name, image_id) in
            self.session.ask(listing, |io| io.image_names("", kept_prefix(), 0))?
        {
            let needed = self.session.ask(listing, |io| {
                match io.open_image_by_id(&image_id, None, Access::ReadOnly) {
                    Err(error) if error.is_not_found() => Ok(false),
                    image => Ok(!image?.snapshots()?.is_empty()),
                }
            })?;
            let subject = format!("image {name}");
            self.inspect_obstacle(&subject, &image_id, findings)?;
            self.inspect_snapshots(&subject, &image_id, findings)?;
            if !needed {
                let problem = "it was kept for a snapshot, and none is left";
                findings.push(for_garbage_collection(subject, problem));
            }
        }
        Ok(())
    }

    fn inspect_trash(&self, findings: &mut Vec<Finding>) -> Result<()> {
        for (id, image_id) in self.images.trashed_volumes()? {
            findings.push(Finding::by_hand(
                "trashed-volume",
                format!("volume {id}"),
                trashed_by_hand(&image_id),
                "do what the problem says; until then the volume is missing from lists, and no daemon makes or \
                 deletes it",
            ));
        }
        for trashed in self.garbage.deleted_images()? {
            let subject = format!("deleted image {}", trashed.id);
            self.inspect_obstacle(&subject, &trashed.id, findings)?;
            self.inspect_snapshots(&subject, &trashed.id, findings)?;
        }
        Ok(())
    }

    /// What keeps a deleted image from being freed.
    fn inspect_obstacle(
        &self,
        subject: &str,
        image_id: &str,
        findings: &mut Vec<Finding>,
    ) -> Result<()> {
        let looking = || format!("inspect {subject}");
        let obstacle = self.session.ask(looking, |io| obstacle(io, &self.info.id, image_id))?;
        if let Some(problem) = obstacle {
            let advice = "do what the problem says; the image is freed within an hour of that";
            findings.push(Finding::by_hand("kept-image", subject, problem, advice));
        }
        Ok(())
    }

    fn inspect_snapshots(
        &self,
        subject: &str,
        image_id: &str,
        findings: &mut Vec<Finding>,
    ) -> Result<()> {
        let looking = || format!("inspect the snapshots of {subject}");
        for number in self.session.ask(looking, |io| unfinished_removals(io, image_id))? {
            let problem = format!("its snapshot number {number} was removed only halfway");
            findings.push(for_garbage_collection(subject, problem));
        }
        for (snapshot, command) in self.garbage.unrecorded_snapshots(image_id)? {
            findings.push(Finding::by_hand(
                "unrecorded-snapshot",
                subject,
                format!(
                    "its snapshot {snapshot} has no record, as after an older copy of the object {RECORDS} was \
                     restored, and nothing frees its space"
                ),
                format!(
                    "restore its record among the keys of {RECORDS}, or remove it with `{command}`"
                ),
            ));
        }
        Ok(())
    }

    fn inspect_exports(&self, findings: &mut Vec<Finding>) -> Result<()> {
        for id in self.exports.unattached_exports()? {
            findings.push(Finding::by_hand(
                "orphaned-export",
                format!("volume {id}"),
                "a process exports its image to this machine, but no device uses it",
                "start this node's daemon: it fences that client and ends it",
            ));
        }
        Ok(())
    }
}

fn for_garbage_collection(subject: impl Into<String>, problem: impl Into<String>) -> Finding {
    let advice = "nothing to do: a running controller corrects this within an hour";
    Finding::by_hand("leftover", subject, problem, advice)
}
