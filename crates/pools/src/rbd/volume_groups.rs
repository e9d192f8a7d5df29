//! Volume groups: records among the pool's keys, and for each member a key that says so. Both change
//! in one operation, so that no volume gets into two groups, whoever tries.

use orlop_model::{Error, Result, VolumeGroupId, VolumeGroupRecord};
use orlop_sys::ceph::{Outcome, Update};

use super::layout::{MEMBER, RECORDS};
use super::store::Store;
use crate::recorded::{parse_record, to_text};

fn parse(id: &VolumeGroupId, text: &[u8]) -> Result<VolumeGroupRecord> {
    parse_record(id, &"record", text)
        .map_err(|reason| Error::damaged(format!("volume group {id}"), reason))
}

impl Store {
    fn volume_group_text(&self, id: &VolumeGroupId) -> Result<Option<Vec<u8>>> {
        let reading = || format!("read volume group {id}");
        self.ask(reading, |io| io.omap_get(RECORDS, &id.to_string()))
    }

    pub(super) fn volume_group(&self, id: &VolumeGroupId) -> Result<Option<VolumeGroupRecord>> {
        self.volume_group_text(id)?.map(|text| parse(id, &text)).transpose()
    }

    pub(super) fn volume_groups(
        &self,
        after: Option<&VolumeGroupId>,
        limit: usize,
    ) -> Result<Vec<VolumeGroupRecord>> {
        let listing = || format!("list the volume groups of pool {}", self.name);
        let prefix = format!("g-{}-", self.id);
        let after = after.map(VolumeGroupId::to_string).unwrap_or_default();
        let all = self.ask(listing, |io| io.omap_list(RECORDS, &after, &prefix, 0))?;
        let wanted = if limit == 0 { usize::MAX } else { limit };
        let records = all.into_iter().filter_map(|(key, text)| {
            let record = key.parse().and_then(|id| parse(&id, &text));
            record.inspect_err(|error| tracing::warn!(%error, "a group cannot be listed")).ok()
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
        self.write_group(&record.id, &update)
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
        match self.ask(writing, |io| io.update(RECORDS, update))? {
            Outcome::Done => Ok(()),
            Outcome::Differs => Err(Error::Busy(format!("volume group {id}, or a volume of it"))),
        }
    }
}
