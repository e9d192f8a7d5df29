//! Which client of which node may write to an image, and how it is stopped for good.
//!
//! A node that attaches a volume to write notes its client's address among the image's metadata,
//! by an operation that succeeds only while the volume's record gives it the right to. Whoever takes
//! the volume away marks that in the record first and then looks for the note: the note is there,
//! or comes too late to be written. The client is put on the cluster's blocklist, by its address
//! and number, so that other clients of the node go on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use orlop_model::{Error, NodeId, Result, VolumeId, VolumeRecord};
use orlop_sys::ceph::{
    Access, FOR_GOOD, IMAGE_LOCK, Image, IoCtx, LockHolder, Outcome, Update, header_of,
    metadata_key,
};
use serde::Deserialize;

use super::elsewhere::attached_by_twin;
use super::layout::{inline_key, record_key, writer_key};
use super::store::Store;
use super::volume_records::{Known, named_image};

const ATTEMPTS: usize = 20;
const LOOKS: usize = 5;
const BETWEEN_LOOKS: Duration = Duration::from_millis(150);

impl Store {
    pub(super) fn noted_writer(&self, id: &VolumeId, node: &NodeId) -> Result<Option<String>> {
        let reading = || format!("read who writes to volume {id}");
        let noted = self.ask(reading, |io| match named_image(io, id)? {
            Some(image_id) => io.image_metadata(&image_id, &writer_key(&image_id, node)),
            None => Ok(None),
        })?;
        Ok(noted.map(|text| String::from_utf8_lossy(&text).into_owned()))
    }

    /// Refused if the volume is not, or no longer, the node's to write to.
    pub(super) fn set_writer(&self, id: &VolumeId, node: &NodeId, address: &str) -> Result<()> {
        let noting = || format!("note who writes to volume {id}");
        for _ in 0..ATTEMPTS {
            let Known { image_id, text, record } = self.require(id)?;
            check_right(&record, node)?;
            let noted = self.own_note(id, &image_id, node, address)?;
            let writer = metadata_key(&writer_key(&image_id, node));
            let mut update = Update::default()
                .expect(&metadata_key(&record_key(&image_id)), Some(&text))
                .expect(&writer, noted.as_deref())
                .set(&writer, address.as_bytes());
            if record.ephemeral {
                let owner = self.inline_owner(id, &image_id, node)?;
                let key = metadata_key(&inline_key(&image_id));
                update = update.expect(&key, owner.as_deref()).set(&key, node.as_str().as_bytes());
            }
            match self.ask(noting, |io| io.update(&header_of(&image_id), &update))? {
                Outcome::Done => return Ok(()),
                Outcome::Differs => {}
            }
        }
        Err(Error::Busy(format!("volume {id}")))
    }

    /// What is noted of this node's writer: this client, or none, as what was there before was let
    /// go of. Another has come since, of a second daemon that goes by the name of this node.
    fn own_note(
        &self,
        id: &VolumeId,
        image_id: &str,
        node: &NodeId,
        address: &str,
    ) -> Result<Option<Vec<u8>>> {
        let reading = || format!("read who writes to volume {id}");
        let noted =
            self.ask(reading, |io| io.image_metadata(image_id, &writer_key(image_id, node)))?;
        match noted {
            Some(other) if other != address.as_bytes() => {
                let other = String::from_utf8_lossy(&other).into_owned();
                let refusal = attached_by_twin(id, node, &other);
                self.attachments.twins.remember(id, other);
                Err(refusal)
            }
            noted => Ok(noted),
        }
    }

    /// What is noted of the one node that has an inline volume: this one, or nothing. No publication
    /// in the record keeps a second node out.
    fn inline_owner(
        &self,
        id: &VolumeId,
        image_id: &str,
        node: &NodeId,
    ) -> Result<Option<Vec<u8>>> {
        match self.noted_inline_owner(id, image_id)? {
            Some(other) if other != node.as_str().as_bytes() => Err(Error::precondition(format!(
                "inline volume {id} is in use on node {}; unpublish it there, or delete it if \
                     that node is gone for good",
                String::from_utf8_lossy(&other)
            ))),
            owner => Ok(owner),
        }
    }

    fn noted_inline_owner(&self, id: &VolumeId, image_id: &str) -> Result<Option<Vec<u8>>> {
        let reading = || format!("read which node has inline volume {id}");
        self.ask(reading, |io| io.image_metadata(image_id, &inline_key(image_id)))
    }

    pub(super) fn inline_elsewhere(&self, id: &VolumeId) -> Result<Option<NodeId>> {
        let Some(Known { image_id, .. }) = self.known(id)? else { return Ok(None) };
        let Some(owner) = self.noted_inline_owner(id, &image_id)? else { return Ok(None) };
        let owner: NodeId = String::from_utf8_lossy(&owner).parse()?;
        Ok((owner != self.attachments.node).then_some(owner))
    }

    /// For a client that has let go by itself.
    pub(super) fn forget_writer(&self, id: &VolumeId, node: &NodeId) -> Result<()> {
        match self.noted_writer(id, node)? {
            Some(address) => self.forget_client(id, node, &address),
            None => Ok(()),
        }
    }

    /// This client, and not one that the node has started since: a controller that was held up
    /// meanwhile must not take the note of a writer that nobody has stopped.
    fn forget_client(&self, id: &VolumeId, node: &NodeId, address: &str) -> Result<()> {
        self.ask(
            || format!("forget who wrote to volume {id}"),
            |io| {
                let Some(image_id) = named_image(io, id)? else { return Ok(()) };
                let key = metadata_key(&writer_key(&image_id, node));
                // An inline volume still belongs to the node: its workload may come back there.
                let update = Update::default().expect(&key, Some(address.as_bytes())).remove(&key);
                match io.update(&header_of(&image_id), &update) {
                    Err(error) if error.is_not_found() => Ok(()),
                    done => done.map(drop),
                }
            },
        )
    }

    /// The note goes last: a crash before that fences once more, which changes nothing.
    pub(super) fn ensure_fenced(&self, id: &VolumeId, node: &NodeId) -> Result<()> {
        let Some(address) = self.noted_writer(id, node)? else {
            return Ok(());
        };
        let fencing = || format!("fence node {node} from volume {id}");
        self.ask(fencing, |io| io.cluster().blocklist(&address, FOR_GOOD))?;
        // Nobody gets the volume before the client is stopped for good, so it may be let back in
        // meanwhile: what it writes then is written by whom the volume is published to.
        if let Some(until) = self.fenced_until(fencing, &address)? {
            return Err(Error::precondition(format!(
                "node {node} may come back and write to volume {id}: its Ceph client {address} was \
                 blocklisted before, but only until {until}, and Ceph does not prolong that; from \
                 then on it can be stopped for good; docs/ceph.md tells more"
            )));
        }
        tracing::warn!(
            volume = %id,
            %node,
            address,
            "fenced a node: its client is blocklisted and cannot write any more"
        );
        self.forget_client(id, node, &address)
    }

    /// For a client of this node that has ended, noted or not: it can write no more, but others would
    /// have to wait until the cluster has noticed. Refused if the noted one lives, for another daemon of
    /// this machine.
    pub(super) fn ensure_let_go(&self, id: &VolumeId, unnoted: Option<String>) -> Result<()> {
        let node = &self.attachments.node;
        let noted = self.noted_writer(id, node)?;
        if let Some(address) = &noted {
            self.check_not_exported_elsewhere(id, address)?;
            if self.is_twins(id)? {
                return Err(attached_by_twin(id, node, address));
            }
        }
        for address in BTreeSet::from_iter(noted.iter().chain(&unnoted)) {
            self.ensure_client_stopped(id, address)?;
        }
        match noted {
            Some(address) => self.forget_client(id, node, &address),
            None => Ok(()),
        }
    }

    pub(super) fn ensure_client_stopped(&self, id: &VolumeId, address: &str) -> Result<()> {
        let freeing = || format!("free volume {id} from a client that has ended");
        self.ask(freeing, |io| io.cluster().blocklist(address, FOR_GOOD))?;
        tracing::warn!(
            volume = %id,
            address,
            "blocklisted the client of an export that did not end cleanly"
        );
        Ok(())
    }

    /// `None`: for good. An entry that was there before is not prolonged by another (seen with
    /// Ceph 16). It could be removed first, but not only if it is still the short one: a second
    /// controller that was held up would let the client in again when the next node has the volume.
    fn fenced_until(&self, fencing: impl Fn() -> String, address: &str) -> Result<Option<String>> {
        let list = self.ask(&fencing, |io| io.cluster().monitor_command(BLOCKLIST))?;
        let until = until_when(&list, address).map_err(|error| Error::failed(fencing(), error))?;
        Ok(match until {
            Some(until) if is_far(&until) => None,
            Some(until) => Some(until),
            // It ran out just now; the next attempt makes another.
            None => Some("now".to_owned()),
        })
    }
}

/// An image that is to be changed, which needs its lock. librbd takes the lock from a client that is
/// silent for too long, and blocklists it, but for an hour only, which then could not be prolonged;
/// so it is done here before, and for good.
pub(super) fn open_to_change(io: &Arc<IoCtx>, image_id: &str) -> orlop_sys::Result<Image> {
    let image = io.open_image_by_id(image_id, None, Access::ReadWrite)?;
    let header = header_of(image_id);
    let look = || io.silent_holder(&image, (&header, IMAGE_LOCK), LockHolder::is);
    if let Some(holder) = still_silent(look)? {
        let address = holder.address;
        tracing::warn!(
            image = image_id,
            address,
            "blocklisted a client that holds the image's lock and does not respond"
        );
        io.cluster().blocklist(&address, FOR_GOOD)?;
    }
    Ok(image)
}

/// The lock and the watchers are asked for one after the other. A client that closes and opens the
/// image all the time may look silent once, or twice, but not each time.
pub(super) fn still_silent(
    look: impl Fn() -> orlop_sys::Result<Option<LockHolder>>,
) -> orlop_sys::Result<Option<LockHolder>> {
    let first = look()?;
    for _ in 0..LOOKS {
        if first.is_none() {
            break;
        }
        thread::sleep(BETWEEN_LOOKS);
        if look()? != first {
            return Ok(None);
        }
    }
    Ok(first)
}

const BLOCKLIST: &str = r#"{"prefix": "osd blocklist ls", "format": "json"}"#;

#[derive(Debug, Deserialize)]
struct Blocked {
    addr: String,
    /// Such as `2031-11-15T03:54:54.850660+0000`.
    until: String,
}

/// Ceph 16 answers with two lists, one after the other: of clients, and of ranges of addresses.
fn until_when(lists: &[u8], address: &str) -> serde_json::Result<Option<String>> {
    for list in serde_json::Deserializer::from_slice(lists).into_iter::<Vec<Blocked>>() {
        if let Some(entry) = list?.into_iter().find(|entry| entry.addr == address) {
            return Ok(Some(entry.until));
        }
    }
    Ok(None)
}

/// More than a year from now, hence an entry of ours.
fn is_far(until: &str) -> bool {
    const SECONDS_OF_A_YEAR: u64 = 31_556_952;
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let this_year = 1970 + since.as_secs() / SECONDS_OF_A_YEAR;
    let year = until.split_once('-').and_then(|(year, _)| year.parse::<u64>().ok());
    year.is_some_and(|year| year > this_year + 1)
}

fn check_right(record: &VolumeRecord, node: &NodeId) -> Result<()> {
    let published = record.published.get(node).is_some_and(|publication| !publication.leaving);
    if record.ephemeral || published {
        return Ok(());
    }
    Err(Error::precondition(format!(
        "volume {} is not published to node {node}, or is being taken from it",
        record.id
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_found_in_either_list() {
        let lists = br#"[{"addr":"127.0.0.1:0/1","until":"2031-01-01T00:00:00.0+0000"}]
            [{"addr":"cidr:10.0.0.0:0/8","until":"2027-01-01T00:00:00.0+0000"}]"#;
        let until = |address| until_when(lists, address).unwrap();
        assert_eq!(until("127.0.0.1:0/1").as_deref(), Some("2031-01-01T00:00:00.0+0000"));
        assert_eq!(until("cidr:10.0.0.0:0/8").as_deref(), Some("2027-01-01T00:00:00.0+0000"));
        assert_eq!(until("127.0.0.1:0/2"), None);
        assert_eq!(until_when(b"[]\n[]", "a").unwrap(), None);
        assert!(until_when(b"[{", "a").is_err());
    }

    #[test]
    fn only_entries_of_years_count_as_for_good() {
        assert!(is_far("9999-11-15T03:54:54.850660+0000"));
        for near in ["1970-01-01T00:00:00+0000", "2026-11-15T03:54:54.850660+0000", "soon", ""] {
            assert!(!is_far(near), "{near}");
        }
    }
}
