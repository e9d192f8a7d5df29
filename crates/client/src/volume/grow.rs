//! `orlop volume grow`

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::controller_client::ControllerClient;
use orlop_csi::proto::csi::v1::node_client::NodeClient;
use orlop_model::Bytes;
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::hand_mounts::{self, HandMount};
use crate::output::Answer;
use crate::plugin::{NodeOffer, Offer};
use crate::session::{Change, Session};
use crate::{inventory, pairs, resolve};

#[derive(Debug, clap::Args)]
pub(super) struct GrowArguments {
    /// Its id or name, or the beginning of one
    volume: String,
    /// The new size, such as 20GiB, or what to add, such as +5GiB
    size: Growth,
    #[command(flatten)]
    change: Change,
}

#[derive(Debug, Clone, Copy)]
enum Growth {
    To(u64),
    By(u64),
}

impl std::str::FromStr for Growth {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.strip_prefix('+') {
            Some(more) => pairs::size(more).map(Self::By),
            None => pairs::size(text).map(Self::To),
        }
    }
}

#[derive(Serialize)]
struct Grown {
    id: String,
    before_bytes: u64,
    size_bytes: u64,
    /// Where its filesystem was grown.
    grown_at: Vec<String>,
    /// It is in use elsewhere, or grows when it is next staged.
    node_expansion_pending: bool,
}

pub(super) async fn run(session: &Session, arguments: &GrowArguments) -> Result<()> {
    let plugin = &session.plugin;
    plugin.require(Offer::ExpandVolume, &"grow a volume")?;
    let id = resolve::volume(plugin, &arguments.volume).await?;
    let volume = inventory::volume(plugin, &id).await?;
    let before = volume.size_bytes;
    let wanted = match arguments.size {
        Growth::To(size) => size,
        Growth::By(more) => before.saturating_add(more),
    };
    if wanted < before {
        return Err(Failure::usage(format!(
            "cannot make volume {} smaller: it has {}, and volumes only grow",
            volume.label(),
            Bytes(before)
        )));
    }
    if arguments.change.dry_run {
        return session.would(&format!(
            "grow volume {} from {} to {}",
            volume.label(),
            Bytes(before),
            Bytes(wanted)
        ));
    }
    let request = v1::ControllerExpandVolumeRequest {
        volume_id: id.clone(),
        capacity_range: Some(range(wanted)),
        secrets: plugin.secrets.clone(),
        volume_capability: None,
    };
    let send = |channel, request| async move {
        ControllerClient::new(channel).controller_expand_volume(request).await
    };
    let answer = plugin
        .ask(&format_args!("grow volume {}", volume.label()), request, send)
        .await?
        .into_inner();
    let mut grown = Grown {
        id: id.clone(),
        before_bytes: before,
        size_bytes: inventory::bytes(answer.capacity_bytes),
        grown_at: Vec::new(),
        node_expansion_pending: answer.node_expansion_required,
    };
    let mounts = hand_mounts::of_volume(&session.directory, &plugin.driver, &id)?;
    if answer.node_expansion_required
        && let Some(mount) = mounts.first()
        && plugin.node_offers().await?.contains(&NodeOffer::ExpandVolume)
    {
        grow_on_node(session, mount, grown.size_bytes).await.map_err(|failure| {
            failure.with_hint(&format!(
                "the volume itself has {} now, so do not add to it again: unmount it and mount it again \
                 to grow its filesystem",
                Bytes(grown.size_bytes)
            ))
        })?;
        grown.grown_at.push(mount.target.display().to_string());
        grown.node_expansion_pending = false;
    }
    let text = format!(
        "grew volume {} from {} to {}{}",
        volume.label(),
        Bytes(before),
        Bytes(grown.size_bytes),
        how(&grown)
    );
    session.show(&Answer::new(vec![id], &grown, text)?)
}

fn how(grown: &Grown) -> String {
    match (grown.grown_at.first(), grown.node_expansion_pending) {
        (Some(target), _) => format!(", and its filesystem at {target}"),
        (None, true) => "; its filesystem is not grown yet: the node that uses the volume has to do that, or the next \
            mount does"
            .to_owned(),
        (None, false) => String::new(),
    }
}

async fn grow_on_node(session: &Session, mount: &HandMount, size: u64) -> Result<()> {
    let request = v1::NodeExpandVolumeRequest {
        volume_id: mount.volume.clone(),
        volume_path: mount.target.display().to_string(),
        capacity_range: Some(range(size)),
        staging_target_path: mount.staging.display().to_string(),
        volume_capability: Some(mount.capability()),
        secrets: session.plugin.secrets.clone(),
    };
    let doing = format!("grow the filesystem at {}", mount.target.display());
    let send = |channel, request| async move {
        NodeClient::new(channel).node_expand_volume(request).await
    };
    session.plugin.ask(&doing, request, send).await.map(drop)
}

fn range(bytes: u64) -> v1::CapacityRange {
    v1::CapacityRange { required_bytes: i64::try_from(bytes).unwrap_or(i64::MAX), limit_bytes: 0 }
}
