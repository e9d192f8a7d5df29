//! Volume groups: records among the pool's keys, and for each member a key that says so. Both change
//! in one operation, so that no volume gets into two groups, however many controllers try.
//!
//! The volume itself is another object, which another controller may be about to delete. So the
//! controller that adds it to a group changes a mark there afterwards; and the controller that deletes it
//! (`delete.rs`) reads the mark, then looks for a group, and deletes only while the mark is the same. One
//! of the two fails.

use std::sync::Arc;

use orlop_model::{Error, PoolInfo, Result, VolumeGroupId, VolumeGroupRecord, VolumeId};
use orlop_sys::ceph::{Update, UpdateOutcome, header_of, metadata_key};
use orlop_sys::rand::random_bytes;

use super::super::image_state::CHANGED;
use super::super::images::{Images, KnownImage};
use super::super::layout::{MEMBER, joined_key, record_key};
use super::super::records::Records;
use super::super::session::{Session, cannot};
use crate::recorded::{parse_record, to_text};

/// How often setting a mark is tried because the volume's record has changed in between.
const ATTEMPTS: usize = 20;

fn parse(id: &VolumeGroupId, text: &[u8]) -> Result<VolumeGroupRecord> {
    parse_record(id, &"record", text)
        .map_err(|reason| Error::damaged(format!("volume group {id}"), reason))
}

#[derive(Debug)]
pub(super) struct VolumeGroupRecords {
    session: Arc<Session>,
    info: Arc<PoolInfo>,
    records: Arc<Records>,
    images: Arc<Images>,
}

impl VolumeGroupRecords {
    pub(super) fn new(
        session: &Arc<Session>,
        info: &Arc<PoolInfo>,
        records: &Arc<Records>,
        images: &Arc<Images>,
    ) -> Self {
        Self {
            session: Arc::clone(session),
            info: Arc::clone(info),
            records: Arc::clone(records),
            images: Arc::clone(images),
        }
    }

    fn text(&self, id: &VolumeGroupId) -> Result<Option<Vec<u8>>> {
        let reading = || format!("read volume group {id}");
        self.records.get(reading, &id.to_string())
    }

    pub(super) fn get(&self, id: &VolumeGroupId) -> Result<Option<VolumeGroupRecord>> {
        self.text(id)?.map(|text| parse(id, &text)).transpose()
    }

    pub(super) fn page(
        &self,
        after: Option<&VolumeGroupId>,
        limit: usize,
    ) -> Result<Vec<VolumeGroupRecord>> {
        let listing = || format!("list the volume groups of pool {}", self.info.name);
        let prefix = format!("g-{}-", self.info.id);
        let after = after.map(VolumeGroupId::to_string).unwrap_or_default();
        let all = self.records.list(listing, &after, &prefix, 0)?;
        let wanted = if limit == 0 { usize::MAX } else { limit };
        let records = all.into_iter().filter_map(|(key, text)| {
            let record = key.parse().and_then(|id| parse(&id, &text));
            record
                .inspect_err(|error| {
                    tracing::warn!(
                        %error,
                        "cannot read a volume group; it is missing from the list"
                    )
                })
                .ok()
        });
        Ok(records.take(wanted).collect())
    }

    pub(super) fn save(
        &self,
        record: &VolumeGroupRecord,
        was: Option<&VolumeGroupRecord>,
    ) -> Result<()> {
        let text = self.text(&record.id)?;
        let there = text.as_deref().map(|text| parse(&record.id, text)).transpose()?;
        if there.as_ref() != was {
            return Err(Error::busy(format!("volume group {}", record.id), CHANGED));
        }
        let key = record.id.to_string();
        let mut update =
            Update::default().expect(&key, text.as_deref()).set(&key, &to_text(record)?);
        let before = was.map(|was| was.members.clone()).unwrap_or_default();
        for volume in record.members.difference(&before) {
            let member = format!("{MEMBER}{volume}");
            update = update.expect(&member, None).set(&member, key.as_bytes());
        }
        for volume in before.difference(&record.members) {
            update = update.remove(&format!("{MEMBER}{volume}"));
        }
        self.write_group(&record.id, &update)?;
        for volume in record.members.difference(&before) {
            if let Err(gone) = self.mark_joined(volume) {
                let mut without = record.clone();
                without.members.remove(volume);
                self.save(&without, Some(record))?;
                return Err(gone);
            }
        }
        Ok(())
    }

    fn mark_joined(&self, id: &VolumeId) -> Result<()> {
        let marking = || format!("mark that volume {id} has joined a group");
        let nonce: [u8; 8] = random_bytes().map_err(cannot(marking))?;
        let mark = format!("{:016x}", u64::from_be_bytes(nonce));
        for _ in 0..ATTEMPTS {
            let KnownImage { image_id, text, .. } = self.images.require(id)?;
            let update = Update::default()
                .expect(&metadata_key(&record_key(&image_id)), Some(&text))
                .set(&metadata_key(&joined_key(&image_id)), mark.as_bytes());
            match self.session.ask(marking, |io| io.update(&header_of(&image_id), &update))? {
                UpdateOutcome::Done => return Ok(()),
                UpdateOutcome::Differs => {}
            }
        }
        Err(Error::busy(format!("volume {id}"), CHANGED))
    }

    pub(super) fn ensure_none(&self, id: &VolumeGroupId) -> Result<()> {
        let Some(text) = self.text(id)? else { return Ok(()) };
        let key = id.to_string();
        let mut update = Update::default().expect(&key, Some(&text)).remove(&key);
        for volume in parse(id, &text)?.members {
            update = update.remove(&format!("{MEMBER}{volume}"));
        }
        self.write_group(id, &update)
    }

    fn write_group(&self, id: &VolumeGroupId, update: &Update) -> Result<()> {
        let writing = || format!("write volume group {id}");
        match self.records.update(writing, update)? {
            UpdateOutcome::Done => Ok(()),
            UpdateOutcome::Differs => Err(Error::busy(
                format!("volume group {id}"),
                "another process changed it or one of its volumes during this call",
            )),
        }
    }
}
