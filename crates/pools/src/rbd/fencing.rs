//! Which client of which node may write to an image, and how it is stopped for good.
//!
//! A node that attaches a volume to write registers its client's address among the image's metadata,
//! by an operation that succeeds only while the volume's record gives it the right to. A controller
//! that takes the volume away marks that in the record first and then looks for the address: it is
//! there, or comes too late to be written. The client is put on the cluster's blocklist, by its
//! address and number, so that other clients of the node go on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use orlop_model::{Error, NodeId, Reason, Result, VolumeId, VolumeRecord};
use orlop_sys::ceph::{
    Access, FENCED_FOR, Update, UpdateOutcome, Watcher, header_of, metadata_key,
};
use serde::Deserialize;

use super::image_state::CHANGED;
use super::images::{Images, KnownImage, named_image};
use super::layout::{image_of, inline_key, record_key, writer_key, writer_prefix};
use super::session::Session;
use crate::poison::lock;

const ATTEMPTS: usize = 20;

#[derive(Debug)]
pub(super) struct Fencing {
    session: Arc<Session>,
    images: Arc<Images>,
    node: NodeId,
    /// The clients, by address, of other daemons with this node id that were faster to attach a
    /// volume.
    rivals: Mutex<HashMap<VolumeId, String>>,
}

impl Fencing {
    pub(super) fn new(session: &Arc<Session>, images: &Arc<Images>, node: NodeId) -> Self {
        Self {
            session: Arc::clone(session),
            images: Arc::clone(images),
            node,
            rivals: Mutex::default(),
        }
    }

    /// This one.
    pub(super) fn node(&self) -> &NodeId {
        &self.node
    }

    /// The address of this node's client that may write to the volume.
    pub(super) fn own_writer(&self, id: &VolumeId) -> Result<Option<String>> {
        self.writer(id, &self.node)
    }

    fn writer(&self, id: &VolumeId, node: &NodeId) -> Result<Option<String>> {
        let reading = || format!("read which Ceph client writes to volume {id}");
        let registered = self.session.ask(reading, |io| match named_image(io, id)? {
            Some(image_id) => io.image_metadata(&image_id, &writer_key(&image_id, node)),
            None => Ok(None),
        })?;
        Ok(registered.map(|text| String::from_utf8_lossy(&text).into_owned()))
    }

    /// Refused if the volume is not, or no longer, the node's to write to.
    pub(super) fn set_own_writer(&self, id: &VolumeId, address: &str) -> Result<()> {
        let node = &self.node;
        let registering = || format!("register the Ceph client that writes to volume {id}");
        for _ in 0..ATTEMPTS {
            let KnownImage { image_id, text, record } = self.images.require(id)?;
            check_right(&record, node)?;
            self.check_no_unrecorded_writer(&record, &image_id)?;
            let registered = self.registered_unless_rival(id, &image_id, address)?;
            let writer = metadata_key(&writer_key(&image_id, node));
            let mut update = Update::default()
                .expect(&metadata_key(&record_key(&image_id)), Some(&text))
                .expect(&writer, registered.as_deref())
                .set(&writer, address.as_bytes());
            if record.ephemeral {
                let owner = self.check_inline_owner(id, &image_id)?;
                let key = metadata_key(&inline_key(&image_id));
                update = update.expect(&key, owner.as_deref()).set(&key, node.as_str().as_bytes());
            }
            match self.session.ask(registering, |io| io.update(&header_of(&image_id), &update))? {
                UpdateOutcome::Done => return Ok(()),
                UpdateOutcome::Differs => {}
            }
        }
        Err(Error::busy(format!("volume {id}"), CHANGED))
    }

    /// The nodes whose clients may write to the volume.
    pub(super) fn writers(&self, id: &VolumeId) -> Result<Vec<NodeId>> {
        let reading = || format!("read which Ceph clients write to volume {id}");
        match self.session.ask(reading, |io| named_image(io, id))? {
            Some(image_id) => registered_writers(&self.session, id, &image_id),
            None => Ok(Vec::new()),
        }
    }

    /// A client is registered only while the record has its node, so one that the record does not know was
    /// registered before the record was replaced by an older copy.
    fn check_no_unrecorded_writer(&self, record: &VolumeRecord, image_id: &str) -> Result<()> {
        let writers = registered_writers(&self.session, &record.id, image_id)?;
        let is_unrecorded = |node: &&NodeId| {
            **node != self.node && !record.ephemeral && !record.published.contains_key(*node)
        };
        match writers.iter().find(is_unrecorded) {
            None => Ok(()),
            Some(other) => Err(Error::precondition(format!(
                "cannot attach volume {}: node {other} may still write to it, although its record does not say \
                 that it is published there, as after an older record was restored; unpublish it from node \
                 {other} first (ControllerUnpublishVolume)",
                record.id
            ))),
        }
    }

    /// What is registered as this node's writer: this client, or none, as the one before has
    /// released the image. Any other is the client of a second daemon with this node id.
    fn registered_unless_rival(
        &self,
        id: &VolumeId,
        image_id: &str,
        address: &str,
    ) -> Result<Option<Vec<u8>>> {
        let node = &self.node;
        let reading = || format!("read which Ceph client writes to volume {id}");
        let registered = self
            .session
            .ask(reading, |io| io.image_metadata(image_id, &writer_key(image_id, node)))?;
        match registered {
            Some(other) if other != address.as_bytes() => {
                let other = String::from_utf8_lossy(&other).into_owned();
                let refusal = attached_by_rival(id, node, &other);
                lock(&self.rivals).insert(id.clone(), other);
                Err(refusal)
            }
            registered => Ok(registered),
        }
    }

    /// The one node that an inline volume is registered for: this one, or none. No publication in
    /// the record keeps a second node out.
    fn check_inline_owner(&self, id: &VolumeId, image_id: &str) -> Result<Option<Vec<u8>>> {
        match self.inline_owner(id, image_id)? {
            Some(other) if other != self.node.as_str().as_bytes() => {
                Err(Error::precondition(format!(
                    "cannot use inline volume {id}: it is in use on node {}; unpublish it there, or \
                     delete it if that node is gone for good",
                    String::from_utf8_lossy(&other)
                )))
            }
            owner => Ok(owner),
        }
    }

    pub(super) fn inline_owner(&self, id: &VolumeId, image_id: &str) -> Result<Option<Vec<u8>>> {
        let reading = || format!("read which node has inline volume {id}");
        self.session.ask(reading, |io| io.image_metadata(image_id, &inline_key(image_id)))
    }

    /// For a client that has released the image by itself.
    pub(super) fn forget_own_writer(&self, id: &VolumeId) -> Result<()> {
        match self.own_writer(id)? {
            Some(address) => self.forget_own_client(id, &address),
            None => Ok(()),
        }
    }

    pub(super) fn forget_own_client(&self, id: &VolumeId, address: &str) -> Result<()> {
        self.forget_client(id, &self.node, address)
    }

    /// This client, and not one that the node has started since: a controller that was held up
    /// in between must not unregister a writer that was not stopped.
    fn forget_client(&self, id: &VolumeId, node: &NodeId, address: &str) -> Result<()> {
        self.session.ask(
            || format!("unregister the Ceph client that wrote to volume {id}"),
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

    /// The registration goes last: a crash before that fences once more, which changes nothing.
    pub(super) fn ensure_fenced(&self, id: &VolumeId, node: &NodeId) -> Result<()> {
        let Some(address) = self.writer(id, node)? else {
            return Ok(());
        };
        let fencing = || format!("fence node {node} from volume {id}");
        self.session.ask(fencing, |io| io.cluster().blocklist(&address, FENCED_FOR))?;
        // No other node gets the volume before the client is stopped for good, so it may come back
        // until then: what it writes is written by the node that the volume is published to.
        if let Some(until) = self.fenced_until(fencing, &address)? {
            return Err(Error::precondition(format!(
                "cannot fence node {node} from volume {id} for good: its Ceph client {address} was \
                 blocklisted before, but only until {until}, and Ceph does not extend that; try \
                 again after that time (docs/ceph.md)"
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

    /// A client that ends in good order stops watching the image.
    pub(super) fn is_own_writer_watching(&self, id: &VolumeId) -> Result<bool> {
        let Some(address) = self.own_writer(id)? else { return Ok(false) };
        Ok(self.watchers(id)?.into_iter().any(|watcher| watcher.address == address))
    }

    pub(super) fn watchers(&self, id: &VolumeId) -> Result<Vec<Watcher>> {
        let asking = || format!("find the client that exports volume {id}");
        self.session.ask(asking, |io| match io.open_image(&image_of(id), Access::ReadOnly) {
            Err(error) if error.is_not_found() => Ok(Vec::new()),
            image => image?.watchers(),
        })
    }

    /// Has another daemon with this node id attached the volume since this one has released it? Then
    /// the registered client is no predecessor of ours; while it lives it is not stopped.
    pub(super) fn is_rivals(&self, id: &VolumeId) -> Result<bool> {
        let Some(rival) = lock(&self.rivals).get(id).cloned() else { return Ok(false) };
        Ok(self.own_writer(id)? == Some(rival) && self.is_own_writer_watching(id)?)
    }

    pub(super) fn ensure_client_stopped(&self, id: &VolumeId, address: &str) -> Result<()> {
        let freeing = || format!("blocklist the ended Ceph client of volume {id}");
        self.session.ask(freeing, |io| io.cluster().blocklist(address, FENCED_FOR))?;
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
        let list = self.session.ask(&fencing, |io| io.cluster().monitor_command(BLOCKLIST))?;
        let until = until_when(&list, address)
            .map_err(|error| Error::failed(fencing(), Reason::of(error)))?;
        Ok(match until {
            Some(until) if is_far(&until) => None,
            Some(until) => Some(until),
            // It ran out just now; the next attempt makes another.
            None => Some("now".to_owned()),
        })
    }
}

pub(super) fn registered_writers(
    session: &Session,
    id: &VolumeId,
    image_id: &str,
) -> Result<Vec<NodeId>> {
    let reading = || format!("read which Ceph clients write to volume {id}");
    let prefix = metadata_key(&writer_prefix(image_id));
    let found =
        session.ask(reading, |io| match io.omap_list(&header_of(image_id), "", &prefix, 0) {
            Err(error) if error.is_not_found() => Ok(Vec::new()),
            listed => listed,
        })?;
    let node = |(key, _): (String, _)| key.strip_prefix(&prefix)?.parse().ok();
    Ok(found.into_iter().filter_map(node).collect())
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

pub(super) fn attached_by_rival(id: &VolumeId, node: &NodeId, address: &str) -> Error {
    Error::precondition(format!(
        "cannot attach volume {id}: another daemon with the node id {node} has attached it, as the \
         Ceph client {address}; give each node its own id (ORLOP_NODE_ID)"
    ))
}

fn check_right(record: &VolumeRecord, node: &NodeId) -> Result<()> {
    let published = record.published.get(node).is_some_and(|publication| !publication.leaving);
    if record.ephemeral || published {
        return Ok(());
    }
    Err(Error::precondition(format!(
        "cannot attach volume {}: it is not published to node {node}, or is being unpublished \
         from it",
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
    fn only_far_future_entries_are_permanent() {
        assert!(is_far("9999-11-15T03:54:54.850660+0000"));
        for near in ["1970-01-01T00:00:00+0000", "2026-11-15T03:54:54.850660+0000", "soon", ""] {
            assert!(!is_far(near), "{near}");
        }
    }
}
