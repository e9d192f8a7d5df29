//! `orlop snapshot diff --files`: both snapshots are mounted, read-only, for as long as their files are compared.

use std::path::PathBuf;

use orlop_csi::proto::csi::v1::volume_content_source::{SnapshotSource, Type};
use orlop_model::NameDigest;
use orlop_sys::file::{self, Lock};

use super::report::Report;
use crate::capability::{Access, ModeName};
use crate::failure::{Failure, Result};
use crate::hand_mounts::{
    HandMount, MountRequest, ensure_directory, ensure_mounted, ensure_unmounted, volume_to_mount,
};
use crate::interrupt::Interruptible;
use crate::inventory::Volume;
use crate::plugin::Offer;
use crate::session::Session;
use crate::tree_diff;
use crate::volume::{NewVolume, create, delete_id};

pub(super) async fn diff(
    session: &Session,
    base: &str,
    target: &str,
    fs: Option<&str>,
) -> Result<()> {
    let doing = format!("compare the files of snapshots {base} and {target}");
    session.plugin.require(Offer::CreateDeleteVolume, &doing)?;
    let work = Interruptible::begin()?;
    let _lock = lock(session, base, target)?;
    let mut mounts = Vec::new();
    let compared = match mount_both(session, [base, target], fs, &work, &mut mounts).await {
        Ok([old, new]) => {
            let mut report = Report::new(session.output, base, target, &old);
            work.run(move |stop| {
                report.begin()?;
                tree_diff::compare(&old, &new, &mut report, stop)?;
                report.end()
            })
            .await
        }
        Err(failure) => Err(failure),
    };
    let mut outcome = compared;
    for mount in &mounts {
        if let Err(left) = ensure_unmounted(session, mount).await {
            let hint = format!(
                "and {} is still mounted: {left}; `orlop volume unmount {}` ends that",
                mount.volume,
                mount.target.display()
            );
            outcome = Err(match outcome {
                Ok(()) => Failure::failed(hint),
                Err(failure) => failure.with_hint(&hint),
            });
        }
    }
    outcome
}

/// `mounts` has what is to be unmounted, however this ends.
async fn mount_both(
    session: &Session,
    snapshots: [&str; 2],
    fs: Option<&str>,
    work: &Interruptible,
    mounts: &mut Vec<HandMount>,
) -> Result<[PathBuf; 2]> {
    let [old, new] = snapshots;
    let old = mount(session, old, fs, work, mounts).await?;
    let new = mount(session, new, fs, work, mounts).await?;
    Ok([old, new])
}

async fn mount(
    session: &Session,
    snapshot: &str,
    fs: Option<&str>,
    work: &Interruptible,
    mounts: &mut Vec<HandMount>,
) -> Result<PathBuf> {
    work.stop.check()?;
    // A snapshot stays as it is, so the volume that an interrupted call left is as good as a new one.
    let text = format!("{}\0{snapshot}\0{}", session.plugin.driver, mounts.len());
    let digest = NameDigest::of_text(&text).as_str().to_owned();
    let source = Type::Snapshot(SnapshotSource { snapshot_id: snapshot.to_owned() });
    let access = Access::mount(fs);
    let name = format!("orlop-snapshot-diff-{digest}");
    let made = create(session, &NewVolume::copy(name, None, access.clone(), source)).await?;
    let mounted = mount_copy(session, &made, snapshot, access, &digest).await;
    match mounted {
        Ok(mount) => {
            let target = mount.target.clone();
            mounts.push(mount);
            Ok(target)
        }
        Err(failure) => Err(match delete_id(session, &made.id, &made.label()).await {
            Ok(()) => failure.with_hint(
                "if the volume has another filesystem than the plugin's default, name it with --fs; of a raw volume \
                 no files are known",
            ),
            Err(also) => failure.with_hint(&also.to_string()),
        }),
    }
}

async fn mount_copy(
    session: &Session,
    made: &Volume,
    snapshot: &str,
    access: Access,
    name: &str,
) -> Result<HandMount> {
    let above = session.directory.join("diff");
    ensure_directory(&session.directory, &above)
        .map_err(|error| Failure::failed(format!("cannot mount snapshot {snapshot}: {error}")))?;
    let wanted = MountRequest {
        volume: volume_to_mount(session, &made.id).await?,
        target: above.join(name),
        access,
        mode: ModeName::SingleNodeWriter,
        read_only: true,
        temporary_copy_of: Some(snapshot.to_owned()),
    };
    ensure_mounted(session, &wanted).await
}

/// Two calls would unmount what the other one reads.
fn lock(session: &Session, base: &str, target: &str) -> Result<Lock> {
    let locks = session.directory.join("locks");
    let text = format!("{}\0{base}\0{target}", session.plugin.driver);
    let path = locks.join(format!("diff-{}", NameDigest::of_text(&text).as_str()));
    let cannot = |why: &dyn std::fmt::Display| {
        Failure::failed(format!("cannot compare snapshots {base} and {target}: {why}"))
    };
    let prepared = ensure_directory(&session.directory, &locks);
    let taken = prepared.and_then(|()| file::try_lock(&path)).map_err(|error| cannot(&error))?;
    taken.ok_or_else(|| cannot(&"another orlop command compares them; run it again later"))
}
