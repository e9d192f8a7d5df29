//! Which client of which node may write to an image, and how it is stopped for good.
//!
//! A node that attaches a volume to write notes its client's address among the image's metadata,
//! by an operation that succeeds only while the volume's record gives it the right to. Whoever takes
//! the volume away marks that in the record first and then looks for the note: the note is there,
//! or comes too late to be written. The client is put on the cluster's blocklist, by its address
//! and number, so that other clients of the node go on.

use orlop_model::{Error, NodeId, Result, VolumeId, VolumeRecord};
use orlop_sys::ceph::{Outcome, Update, header_of, metadata_key};

use super::layout::{record_key, writer_key};
use super::store::Store;
use super::volume_records::{Known, named_image};

const ATTEMPTS: usize = 20;

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
            let update = Update::default()
                .expect(&metadata_key(&record_key(&image_id)), Some(&text))
                .set(&metadata_key(&writer_key(&image_id, node)), address.as_bytes());
            match self.ask(noting, |io| io.update(&header_of(&image_id), &update))? {
                Outcome::Done => return Ok(()),
                Outcome::Differs => {}
            }
        }
        Err(Error::Busy(format!("volume {id}")))
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
        self.ask(fencing, |io| io.cluster().blocklist(&address))?;
        tracing::warn!(volume = %id, %node, address, "fenced: this client writes no more");
        self.forget_client(id, node, &address)
    }
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
