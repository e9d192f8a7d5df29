//! `orlop volume mount` and `unmount`

use std::path::{Path, PathBuf};

use crate::capability::{Access, ModeName};
use crate::failure::{Failure, Result};
use crate::hand_mounts::{
    self, HandMount, MountRequest, ensure_mounted, ensure_unmounted, target, volume_to_mount,
};
use crate::output::Answer;
use crate::resolve;
use crate::session::{Change, Session};

#[derive(Debug, clap::Args)]
pub(super) struct MountArguments {
    /// Its id or name, or the beginning of one
    volume: String,

    /// The directory; with --block, the file at which the raw device appears
    #[arg(value_name = "DIR")]
    target: PathBuf,

    /// Do not allow writes
    #[arg(long)]
    read_only: bool,

    /// The raw device instead of its filesystem
    #[arg(long)]
    block: bool,

    /// The filesystem to expect; by default the one that the volume was made for
    #[arg(long, value_name = "TYPE", conflicts_with = "block")]
    fs: Option<String>,

    /// A mount option that the plugin allows
    #[arg(long = "mount-option", value_name = "OPTION", conflicts_with = "block")]
    options: Vec<String>,

    /// The access mode; the volume has to be made for it
    #[arg(long, value_enum, default_value_t, value_name = "MODE")]
    access_mode: ModeName,

    #[command(flatten)]
    change: Change,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UnmountArguments {
    /// The directory, as it was given to `mount`; or the volume's id or name
    #[arg(value_name = "DIR")]
    target: PathBuf,

    #[command(flatten)]
    change: Change,
}

pub(super) async fn mount(session: &Session, arguments: &MountArguments) -> Result<()> {
    let access = match arguments.block {
        true => Access::Block,
        false => Access::Mount {
            fs: arguments.fs.clone().unwrap_or_default(),
            options: arguments.options.clone(),
        },
    };
    let target = target(&arguments.target, &access)?;
    let id = resolve::volume(&session.plugin, &arguments.volume).await?;
    if arguments.change.dry_run {
        return session.would(&format!("mount volume {id} at {}", target.display()));
    }
    let wanted = MountRequest {
        volume: volume_to_mount(session, &id).await?,
        target,
        access,
        mode: arguments.access_mode,
        read_only: arguments.read_only,
        temporary_copy_of: None,
    };
    let label = wanted.volume.label();
    let mount = ensure_mounted(session, &wanted).await?;
    session.show(&mounted(&mount, &label)?)
}

pub(crate) fn mounted(mount: &HandMount, label: &str) -> Result<Answer> {
    let target = mount.target.display();
    let how = if mount.read_only { ", read-only" } else { "" };
    let copy = match &mount.temporary_copy_of {
        Some(source) => format!(", and deletes this volume, a copy of {source}"),
        None => String::new(),
    };
    let text = format!(
        "mounted volume {label} at {target}{how}; `orlop volume unmount {target}` unmounts it{copy}"
    );
    Answer::new(vec![mount.volume.clone()], mount, text)
}

pub(crate) async fn unmount(session: &Session, arguments: &UnmountArguments) -> Result<()> {
    let mount = find(session, arguments).await?;
    if mount.driver != session.plugin.driver {
        return Err(Failure::usage(format!(
            "cannot unmount {}: plugin {} mounted it, and this is {}; --endpoint {} is its socket",
            mount.target.display(),
            mount.driver,
            session.plugin.driver,
            mount.socket.display()
        )));
    }
    let copy = match mount.temporary_copy_of {
        Some(_) => format!(" and delete volume {}, which was made for this mount", mount.volume),
        None => String::new(),
    };
    if arguments.change.dry_run {
        return session.would(&format!(
            "unmount volume {} from {}{copy}",
            mount.volume,
            mount.target.display()
        ));
    }
    ensure_unmounted(session, &mount).await?;
    let copy = if mount.temporary_copy_of.is_some() {
        ", and deleted the volume, which was made for this mount"
    } else {
        ""
    };
    let text = format!("unmounted volume {} from {}{copy}", mount.volume, mount.target.display());
    session.show(&Answer::new(vec![mount.volume.clone()], &mount, text)?)
}

async fn find(session: &Session, arguments: &UnmountArguments) -> Result<HandMount> {
    let given = &arguments.target;
    let absolute = std::path::absolute(given).unwrap_or_else(|_| given.clone());
    // Links are resolved if the mounted filesystem still answers.
    let resolved = std::fs::canonicalize(given).ok();
    let in_parent = || {
        let parent = std::fs::canonicalize(absolute.parent()?).ok()?;
        Some(parent.join(absolute.file_name()?))
    };
    for path in [resolved, in_parent(), Some(absolute.clone())].into_iter().flatten() {
        if let Some(mount) = hand_mounts::at_target(&session.directory, &path)? {
            return Ok(mount);
        }
    }
    let all = hand_mounts::all(&session.directory)?;
    let of_volume = of_volume(session, given, &all).await;
    let targets = |mounts: &[&HandMount]| {
        let targets = mounts.iter().map(|mount| mount.target.display().to_string());
        targets.collect::<Vec<_>>().join(", ")
    };
    match of_volume.as_slice() {
        [one] => return Ok((*one).clone()),
        [] => {}
        several => {
            return Err(Failure::usage(format!(
                "cannot unmount {}: it is mounted more than once; name one of {}",
                given.display(),
                targets(several)
            )));
        }
    }
    let known = match all.iter().collect::<Vec<_>>().as_slice() {
        [] => "nothing is mounted by hand".to_owned(),
        known => format!("mounted by hand are: {}", targets(known)),
    };
    Err(Failure::usage(format!(
        "cannot unmount {}: there is no note of a mount there; {known}, by the notes in {}; if it was mounted with another \
         ORLOP_RUN_DIR or --config, set the same again",
        given.display(),
        session.directory.display()
    )))
}

/// A name is resolved only if no mount has this id, because a volume of another plugin may be mounted too.
async fn of_volume<'a>(
    session: &Session,
    given: &Path,
    all: &'a [HandMount],
) -> Vec<&'a HandMount> {
    let Some(given) = given.to_str().filter(|given| !given.contains('/')) else {
        return Vec::new();
    };
    let by_id: Vec<&HandMount> = all.iter().filter(|mount| mount.volume == given).collect();
    if !by_id.is_empty() || all.is_empty() {
        return by_id;
    }
    // If this fails, the message of the caller lists what is mounted.
    let Ok(id) = resolve::whole_volume(&session.plugin, given).await else { return Vec::new() };
    let is_it = |mount: &&HandMount| mount.driver == session.plugin.driver && mount.volume == id;
    all.iter().filter(is_it).collect()
}
