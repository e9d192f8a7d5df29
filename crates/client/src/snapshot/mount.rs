//! `orlop snapshot mount` and `unmount`: a snapshot cannot be mounted, a volume that is made out of it can.

use std::path::PathBuf;

use orlop_csi::proto::csi::v1::volume_content_source::{SnapshotSource, Type};
use orlop_model::NameDigest;

use crate::capability::{Access, ModeName};
use crate::failure::{Failure, Result};
use crate::hand_mounts::{self, MountRequest, ensure_mounted, target, volume_to_mount};
use crate::plugin::Offer;
use crate::resolve;
use crate::session::{Change, Session};
use crate::terminal::note;
use crate::volume::{NewVolume, create, delete_id, mounted};

#[derive(Debug, clap::Args)]
pub(super) struct MountArguments {
    /// Its id or name, or the beginning of one
    snapshot: String,

    /// The directory; with --block, the file at which the raw device appears
    #[arg(value_name = "DIR")]
    target: PathBuf,

    /// The raw device instead of its filesystem
    #[arg(long)]
    block: bool,

    /// The filesystem of the snapshot, if it is not the plugin's default
    #[arg(long, value_name = "TYPE", conflicts_with = "block")]
    fs: Option<String>,

    #[command(flatten)]
    change: Change,
}

pub(super) async fn mount(session: &Session, arguments: &MountArguments) -> Result<()> {
    let plugin = &session.plugin;
    let access =
        if arguments.block { Access::Block } else { Access::mount(arguments.fs.as_deref()) };
    let target = target(&arguments.target, &access)?;
    let snapshot = resolve::snapshot(plugin, &arguments.snapshot).await?;
    plugin.require(Offer::CreateDeleteVolume, &format_args!("mount snapshot {snapshot}"))?;
    // The same name for the same wish, so that a repeated call finds its volume.
    let text = format!("{}\0{snapshot}\0{}", plugin.driver, target.display());
    let name = format!("orlop-snapshot-mount-{}", NameDigest::of_text(&text).as_str());
    let source = Type::Snapshot(SnapshotSource { snapshot_id: snapshot.clone() });
    let wanted = NewVolume::copy(name, None, access.clone(), source);
    if arguments.change.dry_run {
        return session.would(&format!(
            "create {} and mount it at {}",
            wanted.described(),
            target.display()
        ));
    }
    if let Some(before) = hand_mounts::at_target(&session.directory, &target)?
        && before.temporary_copy_of.as_ref() != Some(&snapshot)
    {
        return Err(Failure::usage(format!(
            "cannot mount at {}: volume {} is mounted there; `orlop volume unmount {}` first",
            target.display(),
            before.volume,
            target.display()
        )));
    }
    let made = create(session, &wanted).await?;
    note(&format_args!("made volume {} out of snapshot {snapshot}", made.label()));
    let wanted = MountRequest {
        volume: volume_to_mount(session, &made.id).await?,
        target,
        access,
        mode: ModeName::SingleNodeWriter,
        read_only: true,
        temporary_copy_of: Some(snapshot),
    };
    match ensure_mounted(session, &wanted).await {
        Ok(mount) => session.show(&mounted(&mount, &made.label())?),
        Err(failure) => Err(discarded(session, &wanted, failure).await),
    }
}

/// Its volume is of no use without the mount, unless a note of the mount is left for another attempt.
async fn discarded(session: &Session, wanted: &MountRequest, failure: Failure) -> Failure {
    match hand_mounts::at_target(&session.directory, &wanted.target) {
        Ok(None) => match delete_id(session, &wanted.volume.id, &wanted.volume.label()).await {
            Ok(()) => failure,
            Err(also) => failure.with_hint(&also.to_string()),
        },
        Ok(Some(_)) | Err(_) => failure,
    }
}
