//! Who served the pool last: a tag of the thin pool, for what an image pool keeps in `served-by.json`.

use std::path::Path;
use std::sync::{Arc, Mutex};

use orlop_model::{Error, PoolInfo, Reason, Result, Topology};
use serde_json::Value;

use super::commands::Lvm;
use super::layout::{OwnTag, own_tag};
use super::record_tags::{joined, tags_of_text};
use super::report::Lv;
use super::tag_text;
use crate::image::LastOwner;
use crate::poison::lock;

/// Of the tags, and for their checksum.
const KEY: &str = "owner";

#[derive(Debug)]
pub(super) struct OwnerTags {
    lvm: Arc<Lvm>,
    thin_pool: String,
    tags: Mutex<Vec<String>>,
}

impl OwnerTags {
    pub(super) fn load(lvm: &Arc<Lvm>, thin_pool: &Lv) -> Self {
        let is_its = |tag: &&String| piece_of(tag).is_some();
        Self {
            lvm: Arc::clone(lvm),
            thin_pool: thin_pool.name.clone(),
            tags: Mutex::new(thin_pool.tags.iter().filter(is_its).cloned().collect()),
        }
    }

    /// `None`: it is not known. Nothing in the pool depends on it.
    pub(super) fn get(&self) -> Option<LastOwner> {
        let tags = lock(&self.tags);
        let pieces: Vec<&str> = tags.iter().filter_map(|tag| piece_of(tag)).collect();
        let fields = tag_text::read(&joined(&KEY, &pieces).ok()?).ok()?;
        serde_json::from_value(Value::Object(fields)).ok()
    }

    pub(super) fn set(&self, owner: &LastOwner) -> Result<()> {
        if self.get().as_ref() == Some(owner) {
            return Ok(());
        }
        let noting = || {
            let lv = self.lvm.group().lv(&self.thin_pool);
            format!("record which daemon serves the pool in {lv}")
        };
        let failed = |error| Error::failed(noting(), Reason::of(error));
        let Value::Object(mut fields) = serde_json::to_value(owner).map_err(failed)? else {
            return Err(Error::failed(noting(), "it is no object"));
        };
        fields.retain(|_, value| !value.is_null());
        let after = tags_of_text(KEY, &KEY, &tag_text::write(&fields));
        let mut tags = lock(&self.tags);
        let removed = tags.iter().filter(|tag| !after.contains(tag));
        let added = after.iter().filter(|tag| !tags.contains(tag));
        let lv = self.lvm.group().lv(&self.thin_pool);
        let mut arguments: Vec<&str> = removed.flat_map(|tag| ["--deltag", tag]).collect();
        arguments.extend(added.flat_map(|tag| ["--addtag", tag]));
        arguments.push(&lv);
        self.lvm.change(noting, "lvchange", &arguments)?;
        *tags = after;
        Ok(())
    }

    pub(super) fn set_run_stamp(
        &self,
        info: &PoolInfo,
        stamp: String,
        run_dir: &Path,
    ) -> Result<()> {
        self.set(&LastOwner {
            name: info.name.clone(),
            topology: info.topology.clone(),
            run_stamp: Some(stamp),
            run_dir: Some(run_dir.to_owned()),
        })
    }

    /// At a start; the stamp stays as it is. A pool that cannot be changed is served all the same.
    pub(super) fn note(&self, name: &str, topology: &Topology) {
        let before = self.get();
        if let Some(before) = &before
            && (before.name != name || before.topology != *topology)
        {
            let segments = before.topology.segments();
            let topology: Vec<_> = segments.map(|(key, value)| format!("{key}={value}")).collect();
            tracing::info!(
                pool = name,
                name_before = before.name,
                topology_before = topology.join(","),
                "the pool was last served under another name, topology or run directory"
            );
        }
        let now = LastOwner {
            name: name.to_owned(),
            topology: topology.clone(),
            run_stamp: before.as_ref().and_then(|before| before.run_stamp.clone()),
            run_dir: before.and_then(|before| before.run_dir),
        };
        if let Err(error) = self.set(&now) {
            tracing::warn!(%error, "cannot record in the pool which daemon serves it");
        }
    }
}

fn piece_of(tag: &str) -> Option<&str> {
    match own_tag(tag) {
        Some(Ok(OwnTag::Piece { key: KEY, piece })) => Some(piece),
        Some(Ok(OwnTag::Piece { .. } | OwnTag::Word(_) | OwnTag::Pool(_)) | Err(_)) | None => None,
    }
}

#[cfg(test)]
mod tests;
