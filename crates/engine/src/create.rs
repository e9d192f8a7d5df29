//! CreateVolume: empty, from a snapshot, or from another volume.

use orlop_model::encryption::HEADER_BYTES;
use orlop_model::{
    ALLOCATION_UNIT, CapabilitySet, CapacityRange, ContentSource, Draft, Encryption,
    EncryptionState, Error, FormatState, FsType, IoLimits, NameDigest, NewFilesystem, NewVolume,
    PoolId, Result, SnapshotRecord, VolumeId, VolumeParameters, VolumeRecord,
};

use crate::difference::{differs, parameters_differ, source_differs};
use crate::engine::{Engine, PoolRef};
use crate::locks::{Key, LockGuard};
use crate::name_hold::NameHold;
use crate::placement::{Wanted, check_same_pool};
use crate::request::{CreateVolume, Volume};

/// A source that exists, cannot go away while it is held, and will be copied.
struct LockedSource<'a> {
    pool: &'a PoolRef,
    size_bytes: u64,
    format: FormatState,
    encryption: Option<EncryptionState>,
    /// Set when the source is a volume, whose writers have to be quiesced for the point-in-time copy.
    volume: Option<VolumeRecord>,
    _lock: LockGuard,
}

impl Engine {
    pub fn create_volume(&self, request: &CreateVolume) -> Result<Volume> {
        self.create_volume_from(request, None, None)
    }

    /// For a call that counts against the limit of the pool `home`, which is therefore tried first.
    /// `hold` is the lock of the name, if a router has it already.
    pub fn create_volume_from(
        &self,
        request: &CreateVolume,
        home: Option<&PoolId>,
        hold: Option<NameHold>,
    ) -> Result<Volume> {
        let digest = NameDigest::of(&request.name);
        let mut lock = match hold {
            Some(hold) if hold.digest == digest => hold.lock,
            Some(_) | None => self.locks().volume(&digest)?,
        };
        if let Some(existing) = self.find_same(&digest, request)? {
            return Ok(existing);
        }
        let mut source_lock = None;
        if let Some(ContentSource::Volume(source)) = &request.source
            && source.digest() < &digest
        {
            // Locks are taken in the order of their keys.
            drop(lock);
            source_lock = Some(self.locks().source_volume(source.digest())?);
            lock = self.locks().volume(&digest)?;
            if let Some(existing) = self.find_same(&digest, request)? {
                return Ok(existing);
            }
        }
        let _lock = lock;
        let volume = self.create_new(&digest, request, home, false, source_lock)?;
        // Another controller of a shared pool may have been faster, with other arguments.
        check_same_request(&volume, request)?;
        Ok(volume)
    }

    fn find_same(&self, digest: &NameDigest, request: &CreateVolume) -> Result<Option<Volume>> {
        let found = self.find_volume(digest, self.bound_to(request))?;
        let Some((pool, existing)) = found else { return Ok(None) };
        let existing = Volume::of(pool, existing);
        check_same_request(&existing, request)?;
        Ok(Some(existing))
    }

    /// The pool that the volume can only be on, if this is known: the one that is named, or that of
    /// its source. What is bound to a pool need not wait for others that are away.
    fn bound_to<'a>(&'a self, request: &'a CreateVolume) -> Option<&'a str> {
        let of_source = || {
            let source = request.source.as_ref().map(ContentSource::pool);
            source.and_then(|id| self.pools().get(id)).map(|pool| pool.name())
        };
        request.parameters.pool.as_deref().or_else(of_source)
    }

    /// `source_lock` is that of the source, if its turn was before the volume's own.
    pub(crate) fn create_new(
        &self,
        digest: &NameDigest,
        request: &CreateVolume,
        home: Option<&PoolId>,
        ephemeral: bool,
        source_lock: Option<LockGuard>,
    ) -> Result<Volume> {
        let mut source = match &request.source {
            Some(source) => Some(self.hold_source(source, &request.parameters, source_lock)?),
            None => None,
        };
        let capabilities = self.settle_capabilities(&request.capabilities, source.as_ref())?;
        if let Some(fs) = capabilities.fs() {
            request.parameters.check_fit(fs)?;
        }
        if !request.limits.is_empty() {
            self.host()
                .check_limits_work()
                .map_err(|reason| Error::invalid("parameters", reason.to_string()))?;
        }
        let encryption = settle_encryption(request.parameters.encryption, source.as_ref())?;
        if encryption.is_some() {
            self.host()
                .check_encryption_works()
                .map_err(|reason| Error::invalid("parameters", reason.to_string()))?;
        }
        let format = source.as_ref().map_or(FormatState::Blank, |source| source.format);
        // An encrypted one has to be opened before it is formatted.
        let filesystem = match encryption {
            Some(_) => None,
            None => self.filesystem_from_the_start(format, &capabilities)?,
        };
        let plan = NewVolumePlan {
            capacity_bytes: self.choose_size(request, &capabilities, source.as_ref())?,
            capabilities,
            limits: request.limits.applied_to(IoLimits::default()),
            format,
            encryption,
            filesystem,
            ephemeral,
        };
        let wanted = Wanted {
            parameters: &request.parameters,
            topology: request.topology.as_ref(),
            source_pool: source.as_ref().map(|source| source.pool),
            capabilities: &plan.capabilities,
        };
        let mut refusal = None;
        let mut candidates = self.candidates(&wanted)?;
        candidates.sort_by_key(|pool| home.is_some_and(|home| home != pool.id()));
        for pool in candidates {
            let new = plan.on(&pool, digest, request);
            let permit = if home == Some(pool.id()) {
                Ok(None)
            } else {
                self.admit_foreign_call(&pool, home)
            };
            let begun =
                permit.and_then(|permit| Ok((permit, pool.provisioner().begin_volume(&new)?)));
            let (_permit, draft) = match begun {
                Ok(begun) => begun,
                // Nothing of it can be seen yet, so another pool may take the volume.
                Err(
                    refused @ (Error::Exhausted(_)
                    | Error::OutOfRange(_)
                    | Error::Unreachable { .. }),
                ) => {
                    refusal = Some(milder(refusal, refused));
                    continue;
                }
                Err(other) => return Err(other),
            };
            match self.complete(&pool, draft, source.take()) {
                Ok(record) => return Ok(Volume::of(&pool, record)),
                // A copy has no other candidate, and the lock of its source is released.
                Err(full @ (Error::Exhausted(_) | Error::OutOfRange(_)))
                    if request.source.is_none() =>
                {
                    refusal = Some(milder(refusal, full));
                }
                Err(other) => return Err(other),
            }
        }
        Err(refusal.unwrap_or_else(|| {
            Error::exhausted(
                "cannot create the volume: no pool can take it; configure another pool",
            )
        }))
    }

    fn complete(
        &self,
        pool: &PoolRef,
        mut draft: Box<dyn Draft<VolumeRecord>>,
        source: Option<LockedSource<'_>>,
    ) -> Result<VolumeRecord> {
        match source.as_ref().and_then(|source| source.volume.as_ref()) {
            Some(volume) => {
                let _capture_lock = self.lock_capture_in_use(pool, volume)?;
                self.capture_quiesced(pool, &[volume], || draft.capture())?;
            }
            None => draft.capture()?,
        }
        // The draft has the data now, and a thick one is about to copy all of it, which must not
        // keep the source's users waiting, unless it is still needed.
        let _needed = source.filter(|_| draft.needs_source_until_commit());
        draft.commit()
    }

    fn hold_source(
        &self,
        source: &ContentSource,
        wanted: &VolumeParameters,
        lock: Option<LockGuard>,
    ) -> Result<LockedSource<'_>> {
        match source {
            ContentSource::Snapshot(id) => {
                let lock = self.locks().shared(Key::Snapshot(id.digest().clone()))?;
                let (pool, snapshot) = self.require_snapshot(id)?;
                let (size_bytes, format) = (snapshot.size_bytes, restored_format(&snapshot)?);
                let encryption = snapshot.encryption;
                Ok(LockedSource { pool, size_bytes, format, encryption, volume: None, _lock: lock })
            }
            ContentSource::Volume(id) => {
                // Before the lock: a volume that is to be made from a lost one of its name, or from
                // one on another pool, would wait for the lock that it holds itself.
                let (pool, _) = self.require_volume(id)?;
                check_same_pool(pool, wanted)?;
                let lock = match lock {
                    Some(lock) => lock,
                    None => self.locks().source_volume(id.digest())?,
                };
                let (pool, volume) = self.require_volume(id)?;
                let format = copied_format(&volume)?;
                let (size_bytes, encryption) = (volume.capacity_bytes, volume.encryption);
                let volume = Some(volume);
                Ok(LockedSource { pool, size_bytes, format, encryption, volume, _lock: lock })
            }
        }
    }

    /// Names the filesystem where it was left open: the source's, else this node's default.
    fn settle_capabilities(
        &self,
        wanted: &CapabilitySet,
        source: Option<&LockedSource<'_>>,
    ) -> Result<CapabilitySet> {
        if !wanted.wants_mount() {
            return Ok(wanted.clone());
        }
        let offered = self.host().filesystems();
        let copied = source.and_then(|source| source.format.fs());
        if let (Some(copied), Some(named)) = (copied, wanted.fs())
            && copied != named
        {
            return Err(Error::invalid(
                "volume_content_source",
                format!("holds {copied}, but {named} is asked for"),
            ));
        }
        let default = copied.or(offered.first().copied()).ok_or_else(|| {
            Error::invalid("volume_capabilities", "no filesystem can be made on this node")
        })?;
        let settled = wanted.clone().with_default_fs(default);
        match settled.fs() {
            Some(fs) if !offered.contains(&fs) => {
                let reason = format!("{fs} is not offered; offered are {}", names(offered));
                Err(Error::invalid("volume_capabilities", reason))
            }
            Some(_) | None => Ok(settled),
        }
    }

    /// A volume that may be used raw is handed out with nothing in it.
    fn filesystem_from_the_start(
        &self,
        format: FormatState,
        capabilities: &CapabilitySet,
    ) -> Result<Option<NewFilesystem>> {
        match capabilities.fs() {
            Some(fs) if format == FormatState::Blank && !capabilities.wants_block() => {
                Ok(Some(NewFilesystem { fs, uuid: self.host().random_uuid()? }))
            }
            Some(_) | None => Ok(None),
        }
    }

    fn choose_size(
        &self,
        request: &CreateVolume,
        capabilities: &CapabilitySet,
        source: Option<&LockedSource<'_>>,
    ) -> Result<u64> {
        let floor = smallest_volume(capabilities, request.parameters.encryption);
        let Some(source) = source else {
            let preferred = self.settings().default_capacity;
            return CapacityRange::choose(request.range.as_ref(), floor, preferred);
        };
        // CV-14: a copy is never smaller than its source.
        let floor = floor.max(source.size_bytes);
        CapacityRange::choose(request.range.as_ref(), floor, floor)
    }
}

struct NewVolumePlan {
    capacity_bytes: u64,
    capabilities: CapabilitySet,
    limits: IoLimits,
    format: FormatState,
    encryption: Option<EncryptionState>,
    filesystem: Option<NewFilesystem>,
    ephemeral: bool,
}

impl NewVolumePlan {
    fn on(&self, pool: &PoolRef, digest: &NameDigest, request: &CreateVolume) -> NewVolume {
        NewVolume {
            id: VolumeId::new(pool.id().clone(), digest.clone()),
            name: request.name.clone(),
            capacity_bytes: self.capacity_bytes,
            capabilities: self.capabilities.clone(),
            parameters: request.parameters.clone(),
            limits: self.limits,
            source: request.source.clone(),
            format: self.format,
            encryption: self.encryption,
            filesystem: self.filesystem,
            ephemeral: self.ephemeral,
        }
    }
}

/// GC-13: the smallest volume that can be used in all the ways asked for.
pub(crate) fn smallest_volume(capabilities: &CapabilitySet, encryption: Option<Encryption>) -> u64 {
    let usable = capabilities.fs().map_or(ALLOCATION_UNIT, FsType::smallest_volume);
    usable + encryption.map_or(0, |_| HEADER_BYTES)
}

/// A copy has the header of its source, and so its key: it is encrypted if its source is, and only then.
fn settle_encryption(
    wanted: Option<Encryption>,
    source: Option<&LockedSource<'_>>,
) -> Result<Option<EncryptionState>> {
    let refused = |reason: &str| Err(Error::invalid("parameters", reason));
    match (source.map(|source| source.encryption), wanted) {
        (None, None) | (Some(None), None) => Ok(None),
        (None, Some(_)) => Ok(Some(EncryptionState::Unformatted)),
        (Some(Some(state)), Some(_)) => Ok(Some(state)),
        (Some(None), Some(_)) => refused(
            "encryption is asked for, but the source is not encrypted, and a copy is as its source; create an \
             empty volume with encryption and copy the files",
        ),
        (Some(Some(_)), None) => refused(
            "encryption is missing: the source is encrypted, and so is a copy of it, with the same key; give \
             encryption: luks2 and the same Secret",
        ),
    }
}

pub(crate) fn copied_format(volume: &VolumeRecord) -> Result<FormatState> {
    if volume.growing {
        return Err(Error::precondition(format!(
            "cannot copy {}: the growth of its filesystem was interrupted; stage it once, then copy \
             it",
            volume.label()
        )));
    }
    if volume.encryption.is_some_and(|state| state.of_copy().is_none()) {
        return Err(Error::precondition(format!(
            "cannot copy {}: it is being encrypted, or that was interrupted; stage it once, then copy it",
            volume.label()
        )));
    }
    let changing = match volume.format {
        FormatState::Formatting { .. } => "its filesystem is being made, or that was interrupted",
        FormatState::Blank
        | FormatState::Formatted { .. }
        | FormatState::Copied { .. }
        | FormatState::Renewing { .. }
        | FormatState::Raw => "the UUID of its filesystem is being renewed",
    };
    volume.format.of_copy().ok_or_else(|| {
        Error::precondition(format!(
            "cannot copy {}: {changing}; stage it once, then copy it",
            volume.label()
        ))
    })
}

/// Earlier versions took snapshots of volumes that were being formatted. Such a snapshot may be empty, or
/// hold what was written since.
fn restored_format(snapshot: &SnapshotRecord) -> Result<FormatState> {
    snapshot.format.of_copy().ok_or_else(|| {
        Error::precondition(format!(
            "cannot restore {}: it was taken while the filesystem of its volume was being made, so that a volume \
             made from it would be formatted; delete it, or, if it holds data, change `formatting` to \
             `copied` in its record",
            snapshot.label()
        ))
    })
}

fn names(offered: &[FsType]) -> String {
    let names: Vec<_> = offered.iter().map(|fs| fs.as_str()).collect();
    names.join(", ")
}

/// "Away" on one pool outweighs "full now" on another, and that "never possible" on a third.
fn milder(known: Option<Error>, new: Error) -> Error {
    match (known, new) {
        (Some(away @ Error::Unreachable { .. }), _) => away,
        (Some(full @ Error::Exhausted(_)), new) if !matches!(new, Error::Unreachable { .. }) => {
            full
        }
        (Some(_) | None, new) => new,
    }
}

/// CV-03, CV-29: is the volume of this name what is asked for now?
fn check_same_request(existing: &Volume, request: &CreateVolume) -> Result<()> {
    let Volume { record: existing, topology, .. } = existing;
    let what = existing.label();
    let clash = |reason: &str| Err(Error::conflict(&what, reason));
    if let Some(range) = request.range.filter(|range| !range.holds(existing.capacity_bytes)) {
        let there = format!("{} bytes", existing.capacity_bytes);
        return clash(&differs("its size", there, range));
    }
    let wanted = match existing.capabilities.fs() {
        Some(fs) => request.capabilities.clone().with_default_fs(fs),
        None => request.capabilities.clone(),
    };
    if !existing.capabilities.same_uses(&wanted) {
        return clash(&differs("volume_capabilities", &existing.capabilities, &wanted));
    }
    if existing.parameters != request.parameters {
        return clash(&parameters_differ(&existing.parameters, &request.parameters));
    }
    if existing.source != request.source {
        return clash(&source_differs(existing.source.as_ref(), request.source.as_ref()));
    }
    if existing.ephemeral {
        return clash("it belongs to a single workload");
    }
    match &request.topology {
        Some(required) if !topology.is_empty() && required.rank(topology).is_none() => {
            clash("it cannot be reached from the topology that is asked for")
        }
        Some(_) | None => Ok(()),
    }
}
