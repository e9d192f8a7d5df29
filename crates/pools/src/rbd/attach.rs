//! Images as block devices of this machine: an export that shows the image as a file, and a loop
//! device on top.
//!
//! Order: what an earlier client of this node left is fenced, the export is started, its client is
//! noted in the image, the device is attached. Undone in reverse. So whoever can write is noted,
//! and a device that is there has an export.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use orlop_model::{Device, DeviceAccess, Devices, Error, NodeId, Result, VolumeId, VolumeRecord};
use orlop_sys::ceph::{Access, Watcher};
use orlop_sys::loopdev::{self, AttachOptions};
use orlop_sys::storage_daemon::{Ending, Export, Source};
use orlop_sys::work::wait_for_earlier;

use super::devices::{BOTH, LoopDevices, described};
use super::elsewhere::Twins;
use super::failure::Doing;
use super::layout::image_of;
use super::store::{RbdPoolConfig, Store};
use super::volume_records::Known;

/// For the export's log to tell under which number the cluster knows it: it does at once.
const INTRODUCTION_PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Attachments {
    pub(super) node: NodeId,
    pub(super) twins: Twins,
    reach: RbdPoolConfig,
    devices: LoopDevices,
}

impl Attachments {
    pub(super) fn recover(config: &RbdPoolConfig) -> Result<Self> {
        Ok(Self {
            node: config.node_id.clone(),
            twins: Twins::default(),
            reach: config.clone(),
            devices: LoopDevices::recover(exports_in(config)?)?,
        })
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

    pub(super) fn serves_node(&self) -> bool {
        self.reach.serves_node
    }

    /// Of a single operation.
    pub(super) fn timeout(&self) -> Duration {
        self.reach.timeout
    }

    pub(super) fn keep_logs_short(&self) {
        // Where they are is not there: then neither are logs.
        for id in self.devices.exported().unwrap_or_default() {
            BOTH.into_iter().for_each(|access| self.devices.export(&id, access).keep_log_short());
        }
    }

    pub(super) fn writers_export(&self, id: &VolumeId) -> Export {
        self.devices.export(id, DeviceAccess::ReadWrite)
    }

    /// Is it the directory of an export that this daemon makes?
    pub(super) fn is_own(&self, directory: &Path) -> bool {
        self.devices.holds(directory)
    }

    /// The export that a device of this kind is on: one that is there for writers serves readers
    /// of the same node as well.
    fn export_for(&self, id: &VolumeId, access: DeviceAccess) -> Result<(Export, DeviceAccess)> {
        let writers = self.writers_export(id);
        if access == DeviceAccess::ReadWrite || is_running(&writers, id)? {
            return Ok((writers, DeviceAccess::ReadWrite));
        }
        Ok((self.devices.export(id, DeviceAccess::ReadOnly), DeviceAccess::ReadOnly))
    }
}

/// Without links, as the kernel tells the files of devices. Whoever does not serve a node makes
/// nothing, and finds no exports where there is no directory.
fn exports_in(config: &RbdPoolConfig) -> Result<PathBuf> {
    let exports = config.run_dir.join("exports");
    let failed =
        |doing: &str, error| Error::failed(format!("{doing} {}", exports.display()), error);
    if config.serves_node {
        std::fs::create_dir_all(&exports).map_err(|error| failed("make", error))?;
    }
    match exports.canonicalize() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(exports),
        resolved => resolved.map_err(|error| failed("look at", error)),
    }
}

impl Devices for Store {
    fn ensure_attached(&self, id: &VolumeId, access: DeviceAccess) -> Result<Device> {
        let Known { record, .. } = self.require(id)?;
        let devices = &self.attachments.devices;
        if let Some(device) = self.usable(id, access)? {
            return Ok(device);
        }
        let export = self.ensure_exported(&record, access)?;
        let options = AttachOptions {
            label: &id.to_string(),
            read_only: access == DeviceAccess::ReadOnly,
            size: record.capacity_bytes,
        };
        let attached = loopdev::attach(&export.file(), &options);
        let device = attached.doing(|| format!("attach volume {id}"))?;
        devices.remember(id, access, device.clone());
        described(&device)
    }

    fn attached(&self, id: &VolumeId, access: DeviceAccess) -> Result<Option<Device>> {
        self.attachments.devices.attached(id, access)
    }

    /// An export goes with the last device that is on it.
    fn ensure_detached(&self, id: &VolumeId, access: DeviceAccess) -> Result<()> {
        self.attachments.devices.ensure_detached(id, access)?;
        self.ensure_unexported_if_unused(id)
    }

    fn try_detach_unused(&self, id: &VolumeId, access: DeviceAccess) -> Result<()> {
        self.attachments.devices.try_detach_unused(id, access)?;
        self.ensure_unexported_if_unused(id)
    }

    /// Data that a crash left longer than the record says was never promised, so the device shows
    /// what the record says, and the export the image as it is.
    fn refresh_device(&self, id: &VolumeId) -> Result<u64> {
        let refreshing = || format!("let the device of volume {id} grow");
        let Known { image_id, record, .. } = self.require(id)?;
        let (export, access) = self.attachments.export_for(id, DeviceAccess::ReadOnly)?;
        if access == DeviceAccess::ReadOnly {
            return Err(Error::precondition(format!(
                "volume {id} is attached for reading only; it shows its size when it is staged next"
            )));
        }
        // The export sets the size of the image to what it is told: nobody may grow it meanwhile.
        let lock = self.lock_size_for(id, &image_id, &export)?;
        let whole = lock.ensure_size(id, record.capacity_bytes)?;
        export.show_size(whole).doing(refreshing)?;
        drop(lock);
        let mut size = None;
        for access in BOTH {
            if let Some((there, _)) = self.attachments.devices.find(id, access)? {
                let promised = record.capacity_bytes;
                loopdev::refresh_size(&there.device, &export.file(), promised).doing(refreshing)?;
                size = Some(loopdev::size(&there.device.path()).doing(refreshing)?);
            }
        }
        size.ok_or_else(|| Error::precondition(format!("volume {id} is not attached")))
    }

    fn attached_volumes(&self) -> Result<Vec<VolumeId>> {
        let devices = &self.attachments.devices;
        let mut found = Vec::new();
        for id in devices.exported()? {
            if id.pool() == &self.info.id && devices.is_any_attached(&id)? {
                found.push(id);
            }
        }
        Ok(found)
    }
}

impl Store {
    /// The device, unless its export is gone; then it goes too, if nothing uses it.
    fn usable(&self, id: &VolumeId, access: DeviceAccess) -> Result<Option<Device>> {
        let devices = &self.attachments.devices;
        let Some((there, on)) = devices.find(id, access)? else {
            return Ok(None);
        };
        if self.trouble_of(id, on)?.is_none() {
            // A refused detachment leaves it going with its last user, which may stay for long.
            let keeping = || format!("keep the device of volume {id}");
            if there.detaching
                && !loopdev::try_keep_on(&there.device, &there.file).doing(keeping)?
            {
                return Ok(None);
            }
            // A daemon before this one may have left its mkfs at work.
            wait_for_earlier(&there.device.path())
                .doing(|| format!("wait for the device of volume {id}"))?;
            return described(&there.device).map(Some);
        }
        devices.try_detach_unused(id, access)?;
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
            .start(&self.attachments.source(&image_of(id), access), self.attachments.reach.timeout)
            .doing(starting)
            .and_then(|()| match access {
                DeviceAccess::ReadWrite => self.note_writer(id, &export),
                DeviceAccess::ReadOnly => Ok(()),
            });
        match started {
            Ok(()) => Ok(export),
            Err(error) => {
                if let Err(leftover) = self.undo_export(id, &export, access) {
                    tracing::warn!(
                        %leftover,
                        volume = %id,
                        "cannot stop an export that failed to start"
                    );
                }
                Err(error)
            }
        }
    }

    /// Of an export that was started just now. Where another client is noted by then, of a second
    /// daemon that goes by the name of this node, that one is not stopped.
    fn undo_export(&self, id: &VolumeId, export: &Export, access: DeviceAccess) -> Result<()> {
        let ending = || format!("end the export of volume {id}");
        let noted = match access {
            DeviceAccess::ReadWrite => self.noted_writer(id, &self.attachments.node)?,
            DeviceAccess::ReadOnly => None,
        };
        let own = export.remembered_address().doing(ending)?;
        if noted.is_none() || noted == own {
            return self.ensure_unexported(id, access);
        }
        match (export.ensure_stopped().doing(ending)?, own) {
            (Ending::InGoodOrder, _) | (_, None) => Ok(()),
            (_, Some(own)) => self.ensure_client_stopped(id, &own),
        }
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
        let own = self.watchers(id)?.into_iter().find(|watcher| clients.contains(&watcher.client));
        Ok(own.map(|watcher| watcher.address))
    }

    fn ensure_unexported_if_unused(&self, id: &VolumeId) -> Result<()> {
        if self.attachments.devices.is_any_attached(id)? {
            return Ok(());
        }
        self.ensure_unexported(id, DeviceAccess::ReadOnly)?;
        if !self.attachments.writers_export(id).exists() && self.is_twins(id)? {
            return Ok(());
        }
        self.ensure_unexported(id, DeviceAccess::ReadWrite)
    }

    /// A client that ended well has let go of the image; one that was killed has not, and others
    /// would wait for it.
    fn ensure_unexported(&self, id: &VolumeId, access: DeviceAccess) -> Result<()> {
        let export = self.attachments.devices.export(id, access);
        let ending = || format!("end the export of volume {id}");
        let (mut ended, mut unnoted) = (Ending::Killed, None);
        if export.exists() {
            // Of a start that was interrupted before the client was noted.
            let was_running = is_running(&export, id)?;
            unnoted = if was_running { None } else { self.address_of(id, &export)? };
            ended = export.ensure_stopped().doing(ending)?;
        }
        match access {
            // Readers do not show up as users of the image.
            DeviceAccess::ReadOnly => Ok(()),
            // A controller may go by the name of the node that it runs on, and is not it.
            DeviceAccess::ReadWrite if !self.attachments.serves_node() => Ok(()),
            // It may have been killed just before it was asked to end.
            DeviceAccess::ReadWrite
                if ended == Ending::InGoodOrder && !self.is_writer_watching(id)? =>
            {
                self.forget_writer(id, &self.attachments.node)
            }
            DeviceAccess::ReadWrite => self.ensure_let_go(id, unnoted),
        }
    }

    /// A client that ends in good order stops watching the image.
    pub(super) fn is_writer_watching(&self, id: &VolumeId) -> Result<bool> {
        let Some(address) = self.noted_writer(id, &self.attachments.node)? else {
            return Ok(false);
        };
        Ok(self.watchers(id)?.into_iter().any(|watcher| watcher.address == address))
    }

    fn watchers(&self, id: &VolumeId) -> Result<Vec<Watcher>> {
        let asking = || format!("look for the client that exports volume {id}");
        self.ask(asking, |io| match io.open_image(&image_of(id), Access::ReadOnly) {
            Err(error) if error.is_not_found() => Ok(Vec::new()),
            image => image?.watchers(),
        })
    }

    /// At start: a call that was killed between the export and the device has left one without the
    /// other. The next call on the volume would clear it away as well, but there may be none.
    pub(super) fn release_orphaned_exports(&self) -> Result<()> {
        for id in self.attachments.devices.exported()? {
            if id.pool() == &self.info.id
                && let Err(error) = self.ensure_unexported_if_unused(&id)
            {
                tracing::warn!(%error, volume = %id, "cannot stop an export that has no device");
            }
        }
        Ok(())
    }

    /// Exports of this pool that no device is on.
    pub(super) fn unattached_exports(&self) -> Result<Vec<VolumeId>> {
        let devices = &self.attachments.devices;
        let mut found = Vec::new();
        for id in devices.exported()? {
            if id.pool() == &self.info.id && !devices.is_any_attached(&id)? {
                found.push(id);
            }
        }
        Ok(found)
    }

    pub(super) fn device_trouble(&self, id: &VolumeId) -> Result<Option<String>> {
        for access in BOTH {
            if let Some((_, on)) = self.attachments.devices.find(id, access)?
                && let Some(trouble) = self.trouble_of(id, on)?
            {
                return Ok(Some(trouble));
            }
        }
        Ok(None)
    }

    fn trouble_of(&self, id: &VolumeId, on: DeviceAccess) -> Result<Option<String>> {
        let export = self.attachments.devices.export(id, on);
        if !is_running(&export, id)? {
            return Ok(Some("the process that exports it has ended".to_owned()));
        }
        if !self.is_noted(id, &export, on)? {
            return Ok(Some("it was taken from this node, which can write no more".to_owned()));
        }
        Ok(None)
    }
}

fn is_running(export: &Export, id: &VolumeId) -> Result<bool> {
    export.is_running().doing(|| format!("look for the export of volume {id}"))
}
