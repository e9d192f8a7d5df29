//! Volume groups: records among the pool's keys, and for each member a key that says so. Both change
//! in one operation, so that no volume gets into two groups, whoever tries.
//!
//! The volume itself is another object, which another controller may be about to delete. So whoever
//! lets it join changes a mark there afterwards; and whoever deletes it looks at the mark, then for a
//! group, and deletes only while the mark is the same. One of the two fails.

use orlop_model::{Error, Result, VolumeGroupId, VolumeGroupRecord, VolumeId};
use orlop_sys::ceph::{Outcome, Update, header_of, metadata_key};
use orlop_sys::rand::random_bytes;

use super::failure::Doing;
use super::layout::{DELETED, MEMBER, joined_key, record_key};
use super::store::Store;
use super::volume_records::Known;
use crate::recorded::{parse_record, to_text};

/// How often a mark is tried to be set because the volume's record has changed meanwhile.
const ATTEMPTS: usize = 20;

fn parse(id: &VolumeGroupId, text: &[u8]) -> Result<VolumeGroupRecord> {
    parse_record(id, &"record", text)
        .map_err(|reason| Error::damaged(format!("volume group {id}"), reason))
}

impl Store {
    fn volume_group_text(&self, id: &VolumeGroupId) -> Result<Option<Vec<u8>>> {
        let reading = || format!("read volume group {id}");
        self.record(reading, &id.to_string())
    }

    pub(super) fn volume_group(&self, id: &VolumeGroupId) -> Result<Option<VolumeGroupRecord>> {
        self.volume_group_text(id)?.map(|text| parse(id, &text)).transpose()
    }

    pub(super) fn volume_groups(
        &self,
        after: Option<&VolumeGroupId>,
        limit: usize,
    ) -> Result<Vec<VolumeGroupRecord>> {
        let listing = || format!("list the volume groups of pool {}", self.info.name);
        let prefix = format!("g-{}-", self.info.id);
        let after = after.map(VolumeGroupId::to_string).unwrap_or_default();
        let all = self.records(listing, &after, &prefix, 0)?;
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

    pub(super) fn save_volume_group(
        &self,
        record: &VolumeGroupRecord,
        was: Option<&VolumeGroupRecord>,
    ) -> Result<()> {
        let text = self.volume_group_text(&record.id)?;
        let there = text.as_deref().map(|text| parse(&record.id, text)).transpose()?;
        if there.as_ref() != was {
            return Err(Error::Busy(format!("volume group {}", record.id)));
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
                self.save_volume_group(&without, Some(record))?;
                return Err(gone);
            }
        }
        Ok(())
    }

    fn mark_joined(&self, id: &VolumeId) -> Result<()> {
        let marking = || format!("mark that volume {id} has joined a group");
        let nonce: [u8; 8] = random_bytes().doing(marking)?;
        let mark = format!("{:016x}", u64::from_be_bytes(nonce));
        for _ in 0..ATTEMPTS {
            let Known { image_id, text, .. } = self.require(id)?;
            let update = Update::default()
                .expect(&metadata_key(&record_key(&image_id)), Some(&text))
                .set(&metadata_key(&joined_key(&image_id)), mark.as_bytes());
            match self.ask(marking, |io| io.update(&header_of(&image_id), &update))? {
                Outcome::Done => return Ok(()),
                Outcome::Differs => {}
            }
        }
        Err(Error::Busy(format!("volume {id}")))
    }

    /// Deletes the record unless the volume is in a group, or joins one just now.
    pub(super) fn try_mark_deleted(&self, known: &Known) -> Result<Outcome> {
        let Known { image_id, text, record } = known;
        let id = &record.id;
        let deleting = || format!("delete volume {id}");
        let mark = self.ask(deleting, |io| io.image_metadata(image_id, &joined_key(image_id)))?;
        let group = self.record(deleting, &format!("{MEMBER}{id}"))?;
        if let Some(group) = group {
            return Err(Error::precondition(format!(
                "volume {id} is a member of volume group {}; take it out of the group first",
                String::from_utf8_lossy(&group)
            )));
        }
        let record_key = metadata_key(&record_key(image_id));
        let update = Update::default()
            .expect(&record_key, Some(text))
            .expect(&metadata_key(&joined_key(image_id)), mark.as_deref())
            .set(&record_key, DELETED);
        self.ask(deleting, |io| match io.update(&header_of(image_id), &update) {
            Err(error) if error.is_not_found() => Ok(Outcome::Differs),
            outcome => outcome,
        })
    }

    pub(super) fn ensure_no_volume_group(&self, id: &VolumeGroupId) -> Result<()> {
        let Some(text) = self.volume_group_text(id)? else { return Ok(()) };
        let key = id.to_string();
        let mut update = Update::default().expect(&key, Some(&text)).remove(&key);
        for volume in parse(id, &text)?.members {
            update = update.remove(&format!("{MEMBER}{volume}"));
        }
        self.write_group(id, &update)
    }

    fn write_group(&self, id: &VolumeGroupId, update: &Update) -> Result<()> {
        let writing = || format!("write volume group {id}");
        match self.update_records(writing, update)? {
            Outcome::Done => Ok(()),
            Outcome::Differs => Err(Error::Busy(format!("volume group {id}, or a volume of it"))),
        }
    }
}
