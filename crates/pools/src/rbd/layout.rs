//! Where things are in a pool of the cluster; docs/decisions/0019 has the reasons.
//!
//! ```text
//! orlop.pool               an object: the format, the pool's id
//! orlop.records            an object; among its keys
//!     s-POOL-DIGEST        a snapshot: its record, and where its data is
//!     g-POOL-DIGEST        a volume group
//!     member.VOLUME        which group a volume is in
//!     gs-POOL-DIGEST       a group snapshot: its record, and which RBD group its data is in
//!     pending.SNAPSHOT     the intent to take, or to remove, a snapshot of an image
//!     pending-group.NAME   the same of an atomic snapshot of several images
//!     flatten.VOLUME       a volume that is to be made independent of what it was copied from
//!     flatten.image.IMAGE  the same of an image, whose volume may be deleted
//! v-POOL-DIGEST            an image; among its metadata
//!     orlop.record.IMAGE   the volume's record, written last; `-` once it is deleted
//!     orlop.writer.IMAGE.NODE  the address of that node's client, while it may write
//!     orlop.inline.IMAGE   of an inline volume: the one node that it belongs to, until it is deleted
//!     orlop.joined.IMAGE   changes whenever the volume joins a group
//! orlop.nodes              an object; its keys are the nodes that reach the pool
//! orlop-cut.NAME           an RBD group: of an atomic snapshot, and of the images while it is taken
//! orlop-kept.IMAGE         an image whose volume is deleted, but a snapshot of it is not
//! ```
//!
//! IMAGE is the id of an image. It is in the keys because librbd copies all metadata to a clone:
//! what a clone has from its parent is then not taken for its own.

use std::fmt::Display;

use orlop_model::{NodeId, PoolId, Result, VolumeId};
use orlop_sys::rand::random_bytes;

use super::session::cannot;

pub(super) const POOL_HEADER: &str = "orlop.pool";
pub(super) const RECORDS: &str = "orlop.records";
pub(super) const NODES: &str = "orlop.nodes";
/// Among the metadata of an image, all that is Orlop's.
pub(super) const OURS: &str = "orlop.";
pub(super) const DELETED: &[u8] = b"-";

pub(super) const MEMBER: &str = "member.";
pub(super) const INTENT: &str = "pending.";
pub(super) const GROUP_INTENT: &str = "pending-group.";
pub(super) const FLATTEN: &str = "flatten.";
/// After [`FLATTEN`], where no volume is meant, but an image.
const FLATTEN_IMAGE: &str = "image.";
const COPY: &str = "copy-";
const KEPT: &str = "orlop-kept.";
const SNAPSHOT_GROUP: &str = "orlop-cut.";

/// The keys of all snapshots begin so.
pub(super) const SNAPSHOTS: &str = "s-";

/// All volumes have names that begin so.
pub(super) const VOLUMES: &str = "v-";

/// All volumes of the pool have names that begin so.
pub(super) fn volume_prefix(pool: &PoolId) -> String {
    format!("{VOLUMES}{pool}-")
}

pub(super) fn image_of(id: &VolumeId) -> String {
    id.to_string()
}

/// The rest of the key is the id of an image.
pub(super) fn record_prefix() -> String {
    format!("{OURS}record.")
}

pub(super) fn record_key(image_id: &str) -> String {
    format!("{}{image_id}", record_prefix())
}

pub(super) fn writer_key(image_id: &str, node: &NodeId) -> String {
    format!("{}{node}", writer_prefix(image_id))
}

/// The rest of the key is a node.
pub(super) fn writer_prefix(image_id: &str) -> String {
    format!("{OURS}writer.{image_id}.")
}

pub(super) fn inline_key(image_id: &str) -> String {
    format!("{OURS}inline.{image_id}")
}

pub(super) fn joined_key(image_id: &str) -> String {
    format!("{OURS}joined.{image_id}")
}

pub(super) fn flatten_volume_key(id: &VolumeId) -> String {
    format!("{FLATTEN}{id}")
}

pub(super) fn flatten_image_key(image_id: &str) -> String {
    format!("{FLATTEN}{FLATTEN_IMAGE}{image_id}")
}

/// `None`: the request is for a volume.
pub(super) fn image_to_flatten(key: &str) -> Option<&str> {
    key.strip_prefix(FLATTEN)?.strip_prefix(FLATTEN_IMAGE)
}

/// What the snapshot is for that a copy of a volume is made from.
pub(super) fn copy_purpose(copy: &VolumeId) -> String {
    format!("{COPY}{copy}")
}

pub(super) fn kept_name(image_id: &str) -> String {
    format!("{KEPT}{image_id}")
}

/// Was it a volume of this pool, or kept for one?
pub(super) fn is_ours(pool: &PoolId, image: &str) -> bool {
    is_kept(image) || image.starts_with(&volume_prefix(pool))
}

fn is_kept(image: &str) -> bool {
    image.starts_with(KEPT)
}

pub(super) fn kept_prefix() -> &'static str {
    KEPT
}

/// Has Orlop taken this snapshot, for a record or for a copy?
pub(super) fn is_own_snapshot(pool: &PoolId, snapshot: &str) -> bool {
    let for_copies = format!("{COPY}{}", volume_prefix(pool));
    snapshot.starts_with(&format!("s-{pool}-")) || snapshot.starts_with(&for_copies)
}

/// The RBD group of an atomic group snapshot.
pub(super) fn snapshot_group(name: &str) -> String {
    format!("{SNAPSHOT_GROUP}{name}")
}

/// `None`: the group is not Orlop's.
pub(super) fn name_of_snapshot_group(group: &str) -> Option<&str> {
    group.strip_prefix(SNAPSHOT_GROUP)
}

/// Has Orlop made this RBD group, for a group snapshot of this pool?
pub(super) fn is_own_group(pool: &PoolId, group: &str) -> bool {
    name_of_snapshot_group(group).is_some_and(|name| name.starts_with(&format!("gs-{pool}-")))
}

/// A name that no snapshot of any image had before: the orphan of an earlier attempt is never taken
/// for the snapshot that is taken now.
pub(super) fn new_snapshot_name(purpose: impl Display) -> Result<String> {
    let nonce: [u8; 8] = random_bytes().map_err(cannot(|| "generate a random name".to_owned()))?;
    Ok(format!("{purpose}.{:016x}", u64::from_be_bytes(nonce)))
}

/// What a name was made for by [`new_snapshot_name`].
pub(super) fn purpose_of(name: &str) -> Option<&str> {
    name.rsplit_once('.').map(|(purpose, _)| purpose)
}
