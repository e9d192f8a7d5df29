//! Images as block devices of this machine: an export that shows the image as a file, and a loop
//! device on top.
//!
//! Order: what an earlier client of this node left is fenced, the export is started, its client is
//! noted in the image, the device is attached. Undone in reverse. So whoever can write is noted,
//! and a device that is there has an export.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use orlop_model::{Device, DeviceAccess, Error, NodeId, PoolId, Result, VolumeId, VolumeRecord};
use orlop_sys::ceph::Access;
use orlop_sys::loopdev::{self, AttachOptions, LoopDevice, LoopStatus};
use orlop_sys::mounts::{self, MountEntry};
use orlop_sys::storage_daemon::{Export, Source};

use super::failure::Doing;
use super::layout::image_of;
use super::store::{RbdPoolConfig, Store};
use super::volume_records::Known;
use crate::loops::{
    BOTH, Loops, all_attached, check_staying, described, detach, label_of, parse_label, verified,
};
use crate::poison::lock;

/// For the export's log to tell under which number the cluster knows it: it does at once.
const INTRODUCTION_PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Attachments {
    /// One directory for each export.
    exports: PathBuf,
    pub(super) node: NodeId,
    reach: RbdPoolConfig,
    loops: Loops,
}

impl Attachments {
    /// Finds what an earlier process attached. Other daemons on this machine may have attached the
    /// same volumes, from exports of their own.
    pub(super) fn recover(config: &RbdPoolConfig, pool: &PoolId) -> Result<Self> {
        let found = Self {
            exports: config.run_dir.join("exports"),
            node: config.node_id.clone(),
            reach: config.clone(),
            loops: Loops::default(),
        };
        let mounts = all_mounts()?;
        for status in all_attached()? {
            let Some((id, access)) = parse_label(&status.label) else { continue };
            if id.pool() == pool && BOTH.iter().any(|of| found.backs(&id, *of, &status, &mounts)) {
                *lock(&found.loops.slots(&id)).of(access) = Some(status.device);
            }
        }
        Ok(found)
    }

    fn export(&self, id: &VolumeId, access: DeviceAccess) -> Export {
        let name = match access {
            DeviceAccess::ReadWrite => id.to_string(),
            DeviceAccess::ReadOnly => format!("{id}.ro"),
        };
        Export::at(self.exports.join(name))
    }

    /// Known by the mount of the export, as the file itself may be out of reach.
    fn backs(
        &self,
        id: &VolumeId,
        access: DeviceAccess,
        status: &LoopStatus,
        mounts: &[MountEntry],
    ) -> bool {
        let file = self.export(id, access).file();
        let number = |mount: &MountEntry| rustix::fs::makedev(mount.major, mount.minor);
        mounts
            .iter()
            .any(|mount| mount.mount_point == file && number(mount) == status.backing_device)
    }

    fn source<'a>(&'a self, image: &'a str, access: DeviceAccess) -> Source<'a> {
        Source {
            monitors: &self.reach.monitors,
            user: &self.reach.user,
            keyring: &self.reach.keyring,
            pool: &self.reach.pool,
            namespace: &self.reach.namespace,
            image,
            read_only: access == DeviceAccess::ReadOnly,
        }
    }

    /// The export that a device of this kind is on: one that is there for writers serves readers
    /// of the same node as well.
    fn export_for(&self, id: &VolumeId, access: DeviceAccess) -> Result<(Export, DeviceAccess)> {
        let writers = self.export(id, DeviceAccess::ReadWrite);
        if access == DeviceAccess::ReadWrite || is_running(&writers, id)? {
            return Ok((writers, DeviceAccess::ReadWrite));
        }
        Ok((self.export(id, DeviceAccess::ReadOnly), DeviceAccess::ReadOnly))
    }

    /// Volumes of which something is left here, with or without a device.
    fn exported(&self) -> Result<BTreeSet<VolumeId>> {
        let listing = |error| Error::failed("list the exports", error);
        let entries = match std::fs::read_dir(&self.exports) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(BTreeSet::new());
            }
            Err(error) => return Err(listing(error)),
        };
        let mut found = BTreeSet::new();
        for entry in entries {
            let name = entry.map_err(listing)?.file_name().to_string_lossy().into_owned();
            found.extend(name.strip_suffix(".ro").unwrap_or(&name).parse::<VolumeId>().ok());
        }
        Ok(found)
    }
}

impl Store {
    pub(super) fn ensure_attached(&self, id: &VolumeId, access: DeviceAccess) -> Result<Device> {
        let Known { record, .. } = self.require(id)?;
        let slots = self.attachments.loops.slots(id);
        let mut slots = lock(&slots);
        if let Some(device) = self.usable(id, access, slots.of(access))? {
            return described(&device);
        }
        let export = self.ensure_exported(&record, access)?;
        let options = AttachOptions {
            label: &label_of(id, access),
            read_only: access == DeviceAccess::ReadOnly,
            size: record.capacity_bytes,
        };
        let attached = loopdev::attach(&export.file(), &options);
        let device = attached.doing(|| format!("attach volume {id}"))?;
        described(slots.of(access).insert(device))
    }

    /// The device in the slot, unless its export is gone; then it goes too, if nobody has it open.
    fn usable(
        &self,
        id: &VolumeId,
        access: DeviceAccess,
        slot: &mut Option<LoopDevice>,
    ) -> Result<Option<LoopDevice>> {
        let Some(status) = verified(id, access, slot)? else {
            return Ok(None);
        };
        check_staying(id, &status)?;
        let (_, trouble) = self.trouble_of(id, &status)?;
        if trouble.is_none() {
            return Ok(Some(status.device));
        }
        detach(id, access, slot)?;
        Ok(None)
    }

    fn ensure_exported(&self, record: &VolumeRecord, access: DeviceAccess) -> Result<Export> {
        let id = &record.id;
        let (export, access) = self.attachments.export_for(id, access)?;
        let starting = || format!("export volume {id}");
        if is_running(&export, id)? && self.is_noted(id, &export, access)? {
            return Ok(export);
        }
        self.ensure_unexported(id, access)?;
        self.ensure_image_size(record)?;
        let started = export
            .start(&self.attachments.source(&image_of(id), access))
            .doing(starting)
            .and_then(|()| match access {
                DeviceAccess::ReadWrite => self.note_writer(id, &export),
                DeviceAccess::ReadOnly => Ok(()),
            });
        match started {
            Ok(()) => Ok(export),
            Err(error) => {
                if let Err(leftover) = self.ensure_unexported(id, access) {
                    tracing::warn!(%leftover, volume = %id, "a failed export is still there");
                }
                Err(error)
            }
        }
    }

    /// An export may resize the image to what this node saw a moment ago, while a controller
    /// grows it further: see [`Store::refresh_device`].
    fn ensure_image_size(&self, record: &VolumeRecord) -> Result<u64> {
        let id = &record.id;
        let sizing = || format!("look at the size of volume {id}");
        let size = self.ask(sizing, |io| {
            let image = io.open_image(&image_of(id), Access::ReadOnly)?;
            image.size()
        })?;
        if size >= record.capacity_bytes {
            return Ok(size);
        }
        self.ask(sizing, |io| {
            let image = io.open_image(&image_of(id), Access::ReadWrite)?;
            image.ensure_size(record.capacity_bytes)
        })?;
        Ok(record.capacity_bytes)
    }

    /// Started, noted, and not fenced since. Only writers are noted.
    fn is_noted(&self, id: &VolumeId, export: &Export, access: DeviceAccess) -> Result<bool> {
        match access {
            DeviceAccess::ReadOnly => Ok(true),
            DeviceAccess::ReadWrite => {
                let own = export
                    .remembered_address()
                    .doing(|| format!("look at the export of volume {id}"))?;
                Ok(own.is_some() && own == self.noted_writer(id, &self.attachments.node)?)
            }
        }
    }

    /// Before the device exists, so that nobody writes who could not be fenced.
    fn note_writer(&self, id: &VolumeId, export: &Export) -> Result<()> {
        let deadline = Instant::now() + INTRODUCTION_PATIENCE;
        let address = loop {
            if let Some(address) = self.address_of(id, export)? {
                break address;
            }
            if Instant::now() >= deadline {
                return Err(Error::failed(
                    format!("export volume {id}"),
                    "the client of the export is not among the image's watchers",
                ));
            }
            std::thread::sleep(PAUSE);
        };
        export.remember_address(&address).doing(|| format!("export volume {id}"))?;
        self.set_writer(id, &self.attachments.node, &address)
    }

    /// Where the cluster sees the export's client, which watches the image as long as it lives.
    fn address_of(&self, id: &VolumeId, export: &Export) -> Result<Option<String>> {
        let asking = || format!("look for the client that exports volume {id}");
        let clients = export.clients().doing(asking)?;
        let watchers = self.ask(asking, |io| {
            let image = io.open_image(&image_of(id), Access::ReadOnly)?;
            image.watchers()
        })?;
        let own = watchers.into_iter().find(|watcher| clients.contains(&watcher.client));
        Ok(own.map(|watcher| watcher.address))
    }

    pub(super) fn attached(&self, id: &VolumeId, access: DeviceAccess) -> Result<Option<Device>> {
        self.attachments.loops.attached(id, access)
    }

    /// An export goes with the last device that is on it.
    pub(super) fn ensure_detached(&self, id: &VolumeId, access: DeviceAccess) -> Result<()> {
        self.attachments.loops.ensure_detached(id, access)?;
        for other in BOTH {
            if self.attached(id, other)?.is_some() {
                return Ok(());
            }
        }
        BOTH.into_iter().try_for_each(|access| self.ensure_unexported(id, access))
    }

    /// A client that ended well has let go of the image; one that was killed has not, and others
    /// would wait for it.
    fn ensure_unexported(&self, id: &VolumeId, access: DeviceAccess) -> Result<()> {
        let export = self.attachments.export(id, access);
        let ending = || format!("end the export of volume {id}");
        let running = is_running(&export, id)?;
        if export.exists() {
            export.ensure_stopped().doing(ending)?;
        }
        match (access, running) {
            (DeviceAccess::ReadOnly, _) => Ok(()),
            // A controller may go by the name of the node that it runs on, and is not it.
            (DeviceAccess::ReadWrite, _) if !self.attachments.reach.serves_node => Ok(()),
            (DeviceAccess::ReadWrite, true) => self.forget_writer(id, &self.attachments.node),
            (DeviceAccess::ReadWrite, false) => self.ensure_fenced(id, &self.attachments.node),
        }
    }

    /// Data that a crash left longer than the record says was never promised, so the device shows
    /// what the record says, and the export the image as it is.
    pub(super) fn refresh_device(&self, id: &VolumeId) -> Result<u64> {
        let refreshing = || format!("let the device of volume {id} grow");
        let Known { record, .. } = self.require(id)?;
        let slots = self.attachments.loops.slots(id);
        let mut slots = lock(&slots);
        let (export, access) = self.attachments.export_for(id, DeviceAccess::ReadOnly)?;
        if access == DeviceAccess::ReadOnly {
            return Err(Error::precondition(format!(
                "volume {id} is attached for reading only; it shows its size when it is staged next"
            )));
        }
        export.show_size(self.ensure_image_size(&record)?).doing(refreshing)?;
        let mut size = None;
        for access in BOTH {
            if let Some(status) = verified(id, access, slots.of(access))? {
                let promised = record.capacity_bytes;
                loopdev::refresh_size(&status.device, &export.file(), promised)
                    .doing(refreshing)?;
                size = Some(loopdev::size(&status.device.path()).doing(refreshing)?);
            }
        }
        size.ok_or_else(|| Error::precondition(format!("volume {id} is not attached")))
    }

    pub(super) fn attached_volumes(&self) -> Result<Vec<VolumeId>> {
        let mut found = Vec::new();
        for id in self.attachments.exported()? {
            if self.attached(&id, DeviceAccess::ReadWrite)?.is_some()
                || self.attached(&id, DeviceAccess::ReadOnly)?.is_some()
            {
                found.push(id);
            }
        }
        Ok(found)
    }

    /// At start: a call that was killed between the export and the device has left one without the
    /// other. The next call on the volume would clear it away as well, but there may be none.
    pub(super) fn release_orphaned_exports(&self) -> Result<()> {
        for id in self.attachments.exported()? {
            let released = self.ensure_detached_if_unused(&id);
            if let Err(error) = released {
                tracing::warn!(%error, volume = %id, "an export without a device is still there");
            }
        }
        Ok(())
    }

    fn ensure_detached_if_unused(&self, id: &VolumeId) -> Result<()> {
        for access in BOTH {
            if self.attached(id, access)?.is_some() {
                return Ok(());
            }
        }
        BOTH.into_iter().try_for_each(|access| self.ensure_unexported(id, access))
    }

    pub(super) fn device_trouble(&self, id: &VolumeId) -> Result<Option<String>> {
        let Some(slots) = self.attachments.loops.known(id) else {
            return Ok(None);
        };
        let mut slots = lock(&slots);
        for access in BOTH {
            if let Some(status) = verified(id, access, slots.of(access))? {
                let (export, trouble) = self.trouble_of(id, &status)?;
                export.keep_log_short();
                if trouble.is_some() {
                    return Ok(trouble);
                }
            }
        }
        Ok(None)
    }

    fn trouble_of(&self, id: &VolumeId, status: &LoopStatus) -> Result<(Export, Option<String>)> {
        let mounts = all_mounts()?;
        let attachments = &self.attachments;
        let under = BOTH.into_iter().find(|of| attachments.backs(id, *of, status, &mounts));
        let access = under.unwrap_or(DeviceAccess::ReadWrite);
        let export = attachments.export(id, access);
        if under.is_none() || !is_running(&export, id)? {
            return Ok((export, Some("the process that exports it has ended".to_owned())));
        }
        if !self.is_noted(id, &export, access)? {
            let fenced = "it was taken from this node, which can write no more";
            return Ok((export, Some(fenced.to_owned())));
        }
        Ok((export, None))
    }
}

fn is_running(export: &Export, id: &VolumeId) -> Result<bool> {
    export.is_running().doing(|| format!("look for the export of volume {id}"))
}

fn all_mounts() -> Result<Vec<MountEntry>> {
    mounts::all_mounts().doing(|| "read the list of mounts".to_owned())
}
