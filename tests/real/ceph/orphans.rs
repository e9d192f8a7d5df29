//! What is left in the cluster when all volumes and snapshots are deleted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use orlop_sys::ceph::IoCtx;
use orlop_tests::*;

/// The cluster takes a client that was killed for alive for half a minute; then it is tried again.
const TIMEOUT: Duration = Duration::from_secs(300);

/// One namespace, past Orlop.
pub(crate) struct Orphans {
    namespace: &'static str,
    io: Arc<IoCtx>,
}

impl Orphans {
    pub(crate) fn of(namespace: &'static str) -> Self {
        Self { namespace, io: TestCeph::shared().io(namespace) }
    }

    pub(crate) async fn until_none(&self) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let left = self.now();
            if left.is_empty() {
                break;
            }
            assert!(Instant::now() < deadline, "{left:?}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Objects, names and notes of images. Locks are of the objects, and gone with them.
    fn now(&self) -> Vec<String> {
        let parts = ["rbd_data.", "rbd_header.", "rbd_id.", "rbd_object_map.", "rbd_group_header."];
        let mut found = TestCeph::shared().objects(self.namespace);
        found.retain(|object| parts.iter().any(|part| object.starts_with(part)));
        for object in ["rbd_directory", "rbd_trash", "rbd_group_directory", "orlop.records"] {
            let keys = self.io.omap_list(object, "", "", 0).unwrap();
            found.extend(keys.into_iter().map(|(key, _)| format!("{object}: {key}")));
        }
        // Every namespace has this.
        found.retain(|one| one != "rbd_directory: state" && !self.is_prevention(one));
        // The note of a cut that was not made stays for an hour, as a slow maker may still make it.
        found.retain(|one| !one.starts_with("orlop.records: pending."));
        found
    }

    /// A mark in the place of an image that was never made stays for some minutes.
    fn is_prevention(&self, one: &str) -> bool {
        let image = one.strip_prefix("rbd_header.").or_else(|| one.strip_prefix("rbd_trash: id_"));
        image.is_some_and(|image| {
            let keys = self.io.omap_list(&format!("rbd_header.{image}"), "", "", 0).unwrap();
            keys == [(format!("metadata_orlop.record.{image}"), b"-".to_vec())]
        })
    }
}
