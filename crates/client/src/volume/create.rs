//! `orlop volume create`, and the creation of volumes for other commands.

use std::collections::BTreeMap;

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::controller_client::ControllerClient;
use orlop_csi::proto::csi::v1::volume_content_source::{SnapshotSource, Type, VolumeSource};
use orlop_model::{ALLOCATION_UNIT, Bytes};

use crate::capability::{Access, ModeName};
use crate::failure::{Failure, Result};
use crate::inventory::{self, Volume};
use crate::output::Answer;
use crate::plugin::Offer;
use crate::session::{Change, Session};
use crate::{pairs, resolve};

#[derive(Debug, clap::Args)]
pub(super) struct CreateArguments {
    /// A name that no other volume has; a volume that has it already is shown, if it is as asked for
    name: String,

    /// Its size, such as 10GiB; without it that of the source, or the plugin's default
    #[arg(long, short, value_parser = pairs::volume_size)]
    size: Option<u64>,

    /// With this filesystem, such as xfs; without it the plugin's default
    #[arg(long, value_name = "TYPE", conflicts_with = "block")]
    fs: Option<String>,

    /// A raw device, without a filesystem
    #[arg(long)]
    block: bool,

    /// How it may be used
    #[arg(long, value_enum, default_value_t, value_name = "MODE")]
    access_mode: ModeName,

    /// A parameter for the plugin, as of a StorageClass
    #[arg(long = "parameter", short, value_name = "KEY=VALUE", value_parser = pairs::parse)]
    parameters: Vec<(String, String)>,

    /// A parameter that can be changed later, as of a VolumeAttributesClass
    #[arg(long = "mutable", value_name = "KEY=VALUE", value_parser = pairs::parse)]
    mutable: Vec<(String, String)>,

    /// With the contents of this snapshot
    #[arg(long, value_name = "SNAPSHOT", conflicts_with = "from_volume")]
    from_snapshot: Option<String>,

    /// With the contents of this volume
    #[arg(long, value_name = "VOLUME")]
    from_volume: Option<String>,

    /// Where it must be usable: a topology segment, such as csi.orlop.io/node=worker-1; all that are given
    /// have to hold
    #[arg(long, value_name = "KEY=VALUE", value_parser = pairs::parse)]
    topology: Vec<(String, String)>,

    #[command(flatten)]
    change: Change,
}

pub(crate) struct NewVolume {
    pub(crate) name: String,
    pub(crate) size: Option<u64>,
    pub(crate) access: Vec<Access>,
    pub(crate) mode: ModeName,
    pub(crate) parameters: BTreeMap<String, String>,
    pub(crate) mutable: BTreeMap<String, String>,
    pub(crate) source: Option<Type>,
    pub(crate) topology: BTreeMap<String, String>,
}

impl NewVolume {
    pub(crate) fn copy(name: String, size: Option<u64>, access: Access, source: Type) -> Self {
        Self {
            name,
            size,
            access: vec![access],
            mode: ModeName::SingleNodeWriter,
            parameters: BTreeMap::new(),
            mutable: BTreeMap::new(),
            source: Some(source),
            topology: BTreeMap::new(),
        }
    }

    pub(crate) fn described(&self) -> String {
        let size = self.size.map(|size| format!(" of {}", Bytes(size))).unwrap_or_default();
        let access: Vec<String> = self.access.iter().map(access_text).collect();
        let source = match &self.source {
            Some(Type::Snapshot(it)) => format!(" from snapshot {}", it.snapshot_id),
            Some(Type::Volume(it)) => format!(" from volume {}", it.volume_id),
            None => String::new(),
        };
        format!("volume {}{size}, {}{source}", self.name, access.join(" and "))
    }
}

fn access_text(access: &Access) -> String {
    match access {
        Access::Block => "block".to_owned(),
        Access::Mount { fs, .. } if fs.is_empty() => "with the default filesystem".to_owned(),
        Access::Mount { fs, .. } => format!("with {fs}"),
    }
}

pub(super) async fn run(session: &Session, arguments: CreateArguments) -> Result<()> {
    let source = match (&arguments.from_snapshot, &arguments.from_volume) {
        (Some(snapshot), _) => Some(source_of_snapshot(session, snapshot).await?),
        (None, Some(volume)) => Some(source_of_volume(session, volume).await?),
        (None, None) => None,
    };
    let wanted = NewVolume {
        access: vec![match arguments.block {
            true => Access::Block,
            false => Access::mount(arguments.fs.as_deref()),
        }],
        name: arguments.name,
        size: arguments.size,
        mode: arguments.access_mode,
        parameters: pairs::collected("--parameter", &arguments.parameters)?,
        mutable: pairs::collected("--mutable", &arguments.mutable)?,
        source,
        topology: pairs::collected("--topology", &arguments.topology)?,
    };
    if arguments.change.dry_run {
        return session.would(&format!("create {}", wanted.described()));
    }
    let (made, is_new) = create_or_find(session, &wanted).await?;
    let size = Bytes(made.size_bytes);
    let text = match is_new {
        true => format!("created volume {}, {size}{}", made.label(), raised(&wanted, &made)),
        false => format!("volume {} exists already, {size}; nothing was done", made.label()),
    };
    session.show(&Answer::new(vec![made.id.clone()], &made, text)?)
}

/// A plugin may make a volume larger than was asked for.
fn raised(wanted: &NewVolume, made: &Volume) -> String {
    let Some(size) = wanted.size.filter(|size| *size < made.size_bytes) else {
        return String::new();
    };
    if made.size_bytes - size < ALLOCATION_UNIT {
        return format!(" (rounded up from {size} bytes)");
    }
    let least = match wanted.access.first() {
        Some(Access::Mount { fs, .. }) if !fs.is_empty() => format!("the least for {fs}"),
        Some(_) | None => "the least that the plugin makes of this kind".to_owned(),
    };
    format!(" (raised from {}: {least})", Bytes(size))
}

pub(crate) async fn source_of_snapshot(session: &Session, given: &str) -> Result<Type> {
    let snapshot_id = resolve::snapshot(&session.plugin, given).await?;
    Ok(Type::Snapshot(SnapshotSource { snapshot_id }))
}

pub(crate) async fn source_of_volume(session: &Session, given: &str) -> Result<Type> {
    session.plugin.require(Offer::CloneVolume, &format_args!("copy volume {given}"))?;
    let volume_id = resolve::volume(&session.plugin, given).await?;
    Ok(Type::Volume(VolumeSource { volume_id }))
}

/// Also returns whether the volume is new: CSI answers a repeated call like the first one.
pub(crate) async fn create_or_find(
    session: &Session,
    wanted: &NewVolume,
) -> Result<(Volume, bool)> {
    let before = match session.plugin.offers(Offer::ListVolumes) {
        true => inventory::volumes(&session.plugin).await?,
        false => Vec::new(),
    };
    let made = create(session, wanted).await?;
    let is_new = before.iter().all(|it| it.id != made.id);
    Ok((made, is_new))
}

pub(crate) async fn create(session: &Session, wanted: &NewVolume) -> Result<Volume> {
    let plugin = &session.plugin;
    let doing = format!("create volume {}", wanted.name);
    plugin.require(Offer::CreateDeleteVolume, &doing)?;
    let size = match (wanted.size, &wanted.source) {
        (Some(size), _) => Some(size),
        (None, Some(source)) => Some(size_of_source(session, source).await?),
        (None, None) => None,
    };
    let range = |size: u64| v1::CapacityRange {
        required_bytes: i64::try_from(size).unwrap_or(i64::MAX),
        limit_bytes: 0,
    };
    let topology = v1::Topology { segments: wanted.topology.clone() };
    let request = v1::CreateVolumeRequest {
        name: wanted.name.clone(),
        capacity_range: size.map(range),
        volume_capabilities: wanted.access.iter().map(|it| it.capability(wanted.mode)).collect(),
        parameters: wanted.parameters.clone(),
        secrets: plugin.secrets.clone(),
        volume_content_source: wanted
            .source
            .clone()
            .map(|source| v1::VolumeContentSource { r#type: Some(source) }),
        accessibility_requirements: (!wanted.topology.is_empty()).then(|| {
            v1::TopologyRequirement { requisite: vec![topology.clone()], preferred: vec![topology] }
        }),
        mutable_parameters: wanted.mutable.clone(),
    };
    let send = |channel, request| async move {
        ControllerClient::new(channel).create_volume(request).await
    };
    let answer = plugin.ask(&doing, request, send).await?.into_inner();
    let made = answer.volume.map(Volume::of).filter(|volume| !volume.id.is_empty());
    let made = made.ok_or_else(|| {
        Failure::failed(format!("cannot {doing}: the plugin's answer has no volume id"))
    })?;
    Ok(Volume { name: Some(wanted.name.clone()), ..made })
}

async fn size_of_source(session: &Session, source: &Type) -> Result<u64> {
    match source {
        Type::Snapshot(it) => {
            Ok(inventory::snapshot(&session.plugin, &it.snapshot_id).await?.size_bytes)
        }
        Type::Volume(it) => Ok(inventory::volume(&session.plugin, &it.volume_id).await?.size_bytes),
    }
}
