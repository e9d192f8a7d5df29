//! Images as block devices of this machine: an export that shows the image as a file, and a loop
//! device on top.
//!
//! Order: what an earlier client of this node left is fenced, the export is started, its client is
//! registered in the image, the device is attached. Undone in reverse. So every client that can write
//! is registered, and every device has an export.

mod devices;
mod other_daemons;
mod start;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orlop_model::{Device, DeviceAccess, Devices, Error, PoolInfo, Result, VolumeId, VolumeRecord};
use orlop_sys::device_lock::wait_until_unlocked;
use orlop_sys::loopdev::{self, AttachOptions};
use orlop_sys::rbd_export::{Export, ExportEnd, ExportSource};

use super::fencing::{Fencing, attached_by_rival};
use super::images::{Images, KnownImage};
use super::layout::image_of;
use super::open::RbdPoolConfig;
use super::session::{Session, cannot};
use super::size_lock::SizeLock;
use crate::in_use::check_not_cut;
use devices::{BOTH, ExportDevices, described};

/// For the export's log to say under which number the cluster knows it: it does at once.
const REGISTRATION_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Exports {
    info: Arc<PoolInfo>,
    session: Arc<Session>,
    images: Arc<Images>,
    fencing: Arc<Fencing>,
    config: RbdPoolConfig,
    devices: ExportDevices,
}

impl Exports {
    pub(super) fn recover(
        info: &Arc<PoolInfo>,
        session: &Arc<Session>,
        images: &Arc<Images>,
        fencing: &Arc<Fencing>,
        config: &RbdPoolConfig,
    ) -> Result<Self> {
        let devices = ExportDevices::recover(start::exports_directory(config)?)?;
        Ok(Self {
            info: Arc::clone(info),
            session: Arc::clone(session),
            images: Arc::clone(images),
            fencing: Arc::clone(fencing),
            config: config.clone(),
            devices,
        })
    }

    fn source<'a>(&'a self, image: &'a str, access: DeviceAccess) -> ExportSource<'a> {
        ExportSource {
            monitors: &self.config.monitors,
            user: &self.config.user,
            keyring: &self.config.keyring,
            pool: &self.config.pool,
            namespace: &self.config.namespace,
            image,
            read_only: access == DeviceAccess::ReadOnly,
        }
    }

    pub(super) fn keep_logs_short(&self) {
        // Where they are is not there: then neither are logs.
        for id in self.devices.exported().unwrap_or_default() {
            BOTH.into_iter().for_each(|access| self.devices.export(&id, access).keep_log_short());
        }
    }

    fn writers_export(&self, id: &VolumeId) -> Export {
        self.devices.export(id, DeviceAccess::ReadWrite)
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

impl Devices for Exports {
    fn ensure_attached(&self, id: &VolumeId, access: DeviceAccess) -> Result<Device> {
        let KnownImage { record, .. } = self.images.require(id)?;
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
        let device = attached.map_err(cannot(|| format!("attach volume {id}")))?;
        self.devices.remember(id, access, device.clone());
        described(&device)
    }

    fn attached(&self, id: &VolumeId, access: DeviceAccess) -> Result<Option<Device>> {
        self.devices.attached(id, access)
    }

    /// An export goes with the last device that is on it.
    fn ensure_detached(&self, id: &VolumeId, access: DeviceAccess) -> Result<()> {
        self.devices.ensure_detached(id, access)?;
        self.ensure_unexported_if_unused(id)
    }

    fn try_detach_unused(&self, id: &VolumeId, access: DeviceAccess) -> Result<()> {
        self.devices.try_detach_unused(id, access)?;
        self.ensure_unexported_if_unused(id)
    }

    /// Data that a crash left longer than the record says was never promised, so the device shows
    /// what the record says, and the export the image as it is.
    fn refresh_device(&self, id: &VolumeId) -> Result<u64> {
        let refreshing = || format!("grow the device of volume {id}");
        let KnownImage { image_id, record, .. } = self.images.require(id)?;
        let (export, access) = self.export_for(id, DeviceAccess::ReadOnly)?;
        if access == DeviceAccess::ReadOnly {
            return Err(Error::precondition(format!(
                "cannot grow the device of volume {id}: it is attached read-only; it has the new \
                 size when it is staged next"
            )));
        }
        // The export sets the size of the image to the one it is given: no other client may grow it
        // until then.
        let lock = SizeLock::acquire_for(&self.session, id, &image_id, &export)?;
        let whole = lock.size(&record)?;
        export.set_size(whole).map_err(cannot(refreshing))?;
        drop(lock);
        let mut size = None;
        for access in BOTH {
            if let Some((there, _)) = self.devices.find(id, access)? {
                let promised = record.capacity_bytes;
                let shown = loopdev::size(&there.device.path()).map_err(cannot(refreshing))?;
                check_not_cut(&there.device.path(), id, shown, promised)?;
                loopdev::refresh_size(&there.device, &export.file(), promised)
                    .map_err(cannot(refreshing))?;
                size = Some(loopdev::size(&there.device.path()).map_err(cannot(refreshing))?);
            }
        }
        size.ok_or_else(|| {
            Error::precondition(format!(
                "cannot grow the device of volume {id}: it is not attached; stage it first"
            ))
        })
    }

    fn attached_volumes(&self) -> Result<Vec<VolumeId>> {
        let mut found = Vec::new();
        for id in self.devices.exported()? {
            if id.pool() == &self.info.id && self.devices.is_any_attached(&id)? {
                found.push(id);
            }
        }
        Ok(found)
    }
}

impl Exports {
    /// The device, unless its export is gone; then it goes too, if nothing uses it.
    fn usable(&self, id: &VolumeId, access: DeviceAccess) -> Result<Option<Device>> {
        let Some((there, on)) = self.devices.find(id, access)? else {
            return Ok(None);
        };
        if self.problem_of(id, on)?.is_none() {
            // After a refused detachment the kernel detaches it when its last user closes it, which may be much later.
            let keeping = || format!("lock the device of volume {id}");
            if there.detaching
                && !loopdev::try_keep_on(&there.device, &there.file).map_err(cannot(keeping))?
            {
                return Ok(None);
            }
            // A daemon before this one may have left its mkfs at work.
            wait_until_unlocked(&there.device.path())
                .map_err(cannot(|| format!("wait for the device of volume {id}")))?;
            return described(&there.device).map(Some);
        }
        self.devices.try_detach_unused(id, access)?;
        Ok(None)
    }

    fn ensure_exported(&self, record: &VolumeRecord, access: DeviceAccess) -> Result<Export> {
        let id = &record.id;
        let (export, access) = self.export_for(id, access)?;
        let starting = || format!("export volume {id}");
        if is_running(&export, id)? && self.is_registered(id, &export, access)? {
            return Ok(export);
        }
        self.ensure_unexported(id, access)?;
        self.images.check_length(&self.images.require(id)?)?;
        if access == DeviceAccess::ReadWrite {
            self.check_no_hand_lock(id)?;
        }
        let started = export
            .start(&self.source(&image_of(id), access), self.config.timeout)
            .map_err(cannot(starting))
            .and_then(|()| match access {
                DeviceAccess::ReadWrite => self.register_writer(id, &export),
                DeviceAccess::ReadOnly => Ok(()),
            });
        match started {
            Ok(()) => Ok(export),
            Err(error) => {
                if let Err(failure) = self.undo_export(id, &export, access) {
                    tracing::warn!(
                        %failure,
                        volume = %id,
                        "cannot stop an export that failed to start"
                    );
                }
                Err(error)
            }
        }
    }

    /// Stops an export that was just started. If the client of a second daemon with this node id is registered by now,
    /// that daemon's export is not stopped.
    fn undo_export(&self, id: &VolumeId, export: &Export, access: DeviceAccess) -> Result<()> {
        let ending = || format!("stop the export of volume {id}");
        let registered = match access {
            DeviceAccess::ReadWrite => self.fencing.own_writer(id)?,
            DeviceAccess::ReadOnly => None,
        };
        let own = export.remembered_address().map_err(cannot(ending))?;
        if registered.is_none() || registered == own {
            return self.ensure_unexported(id, access);
        }
        match (export.ensure_stopped().map_err(cannot(ending))?, own) {
            (ExportEnd::Clean, _) | (_, None) => Ok(()),
            (_, Some(own)) => self.fencing.ensure_client_stopped(id, &own),
        }
    }

    /// Started, registered, and not fenced since. Only writers are registered.
    fn is_registered(&self, id: &VolumeId, export: &Export, access: DeviceAccess) -> Result<bool> {
        match access {
            DeviceAccess::ReadOnly => Ok(true),
            DeviceAccess::ReadWrite => {
                let own = export
                    .remembered_address()
                    .map_err(cannot(|| format!("inspect the export of volume {id}")))?;
                Ok(own.is_some() && own == self.fencing.own_writer(id)?)
            }
        }
    }

    /// Before the device exists, so that every writer can be fenced.
    fn register_writer(&self, id: &VolumeId, export: &Export) -> Result<()> {
        let deadline = Instant::now() + REGISTRATION_TIMEOUT;
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
            std::thread::sleep(POLL_INTERVAL);
        };
        export.remember_address(&address).map_err(cannot(|| format!("export volume {id}")))?;
        self.fencing.set_own_writer(id, &address)
    }

    /// Where the cluster sees the export's client, which watches the image as long as it lives.
    fn address_of(&self, id: &VolumeId, export: &Export) -> Result<Option<String>> {
        let asking = || format!("find the client that exports volume {id}");
        let clients = export.clients().map_err(cannot(asking))?;
        let own = self
            .fencing
            .watchers(id)?
            .into_iter()
            .find(|watcher| clients.contains(&watcher.client));
        Ok(own.map(|watcher| watcher.address))
    }

    fn ensure_unexported_if_unused(&self, id: &VolumeId) -> Result<()> {
        if self.devices.is_any_attached(id)? {
            return Ok(());
        }
        self.ensure_unexported(id, DeviceAccess::ReadOnly)?;
        if !self.writers_export(id).exists() && self.fencing.is_rivals(id)? {
            return Ok(());
        }
        self.ensure_unexported(id, DeviceAccess::ReadWrite)
    }

    /// A client that ended well has released the image; one that was killed has not, and others
    /// would wait for it.
    fn ensure_unexported(&self, id: &VolumeId, access: DeviceAccess) -> Result<()> {
        let export = self.devices.export(id, access);
        let ending = || format!("stop the export of volume {id}");
        let (mut ended, mut unregistered) = (ExportEnd::Killed, None);
        if export.exists() {
            // The client of an attach that was interrupted before its registration.
            let was_running = is_running(&export, id)?;
            unregistered = if was_running { None } else { self.address_of(id, &export)? };
            ended = export.ensure_stopped().map_err(cannot(ending))?;
        }
        match access {
            // Readers do not show up as users of the image.
            DeviceAccess::ReadOnly => Ok(()),
            // A controller may have the id of the node that it runs on, and is not that node.
            DeviceAccess::ReadWrite if !self.config.serves_node => Ok(()),
            // It may have been killed just before it was asked to end.
            DeviceAccess::ReadWrite
                if ended == ExportEnd::Clean && !self.fencing.is_own_writer_watching(id)? =>
            {
                self.fencing.forget_own_writer(id)
            }
            DeviceAccess::ReadWrite => self.ensure_released(id, unregistered),
        }
    }

    /// For a client of this node that has ended, registered or not: it can write no more, but others
    /// would have to wait until the cluster has noticed. Refused if the registered one lives, for
    /// another daemon of this machine.
    fn ensure_released(&self, id: &VolumeId, unregistered: Option<String>) -> Result<()> {
        let registered = self.fencing.own_writer(id)?;
        if let Some(address) = &registered {
            self.check_not_exported_elsewhere(id, address)?;
            if self.fencing.is_rivals(id)? {
                return Err(attached_by_rival(id, self.fencing.node(), address));
            }
        }
        for address in BTreeSet::from_iter(registered.iter().chain(&unregistered)) {
            self.fencing.ensure_client_stopped(id, address)?;
        }
        match registered {
            Some(address) => self.fencing.forget_own_client(id, &address),
            None => Ok(()),
        }
    }

    /// A writer would wait for the lock without limit, and what waits for it in the kernel cannot be
    /// called off.
    fn check_no_hand_lock(&self, id: &VolumeId) -> Result<()> {
        let known = self.images.require(id)?;
        let exporting = || format!("export volume {id}");
        self.session.ask(exporting, |io| io.check_no_hand_lock(&known.image_id))
    }

    /// Why a device of the volume no longer reaches it, if it does not.
    pub(super) fn problem(&self, id: &VolumeId) -> Result<Option<String>> {
        for access in BOTH {
            if let Some((_, on)) = self.devices.find(id, access)?
                && let Some(problem) = self.problem_of(id, on)?
            {
                return Ok(Some(problem));
            }
        }
        Ok(None)
    }

    fn problem_of(&self, id: &VolumeId, on: DeviceAccess) -> Result<Option<String>> {
        let export = self.devices.export(id, on);
        if !is_running(&export, id)? {
            return Ok(Some("the process that exports it has ended".to_owned()));
        }
        if !self.is_registered(id, &export, on)? {
            return Ok(Some("this node was fenced from it and cannot write any more".to_owned()));
        }
        Ok(None)
    }
}

fn is_running(export: &Export, id: &VolumeId) -> Result<bool> {
    export.is_running().map_err(cannot(|| format!("find the export of volume {id}")))
}
