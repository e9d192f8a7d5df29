//! All members of a group are of one instant while their volumes are written to.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::capability::is_block;
use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::{CheckContext, Placed};
use crate::need::Need;
use crate::wire::csi::v1::{Snapshot, Volume, VolumeCapability, VolumeGroupSnapshot};

pub(in crate::checks) const SECTION: Section = Section {
    title: "CreateVolumeGroupSnapshot: one instant",
    service: Service::GroupController,
    needs: &[Need::GroupSnapshots, Need::NodeService, Need::LocalFiles],
    checks: CHECKS,
    unseen: &[],
};

const CHECKS: &[Check] = &[check(
    "group-snapshot-of-one-instant",
    "writes rising numbers to one volume, then to the other, cuts meanwhile, and restores",
    &["GG-04", "GG-05"],
    run!(of_one_instant),
)];

/// The number is rewritten in place, so that a cut finds one at any time.
const LENGTH: usize = 8;

fn number_path(placed: &Placed) -> PathBuf {
    let target = placed.target_path();
    if is_block(&placed.capability) { target } else { target.join("number") }
}

fn write_number(file: &File, number: u64) -> std::io::Result<()> {
    file.write_all_at(&number.to_le_bytes(), 0)?;
    file.sync_data()
}

fn open(path: &Path) -> std::io::Result<File> {
    // A device is there; a file is not.
    File::options().create(!path.exists()).truncate(false).write(true).open(path)
}

/// Writes each number to the first file and then to the second, each durable before the next.
struct Writer {
    ends: Arc<AtomicBool>,
    finished: Arc<AtomicU64>,
    writing: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Writer {
    fn start(first: &Path, second: &Path) -> std::io::Result<Self> {
        let (first, second) = (open(first)?, open(second)?);
        write_number(&first, 0)?;
        write_number(&second, 0)?;
        let (ends, finished) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stop, count) = (Arc::clone(&ends), Arc::clone(&finished));
        let writing = tokio::task::spawn_blocking(move || {
            let mut number = 0;
            while !stop.load(Ordering::Acquire) {
                number += 1;
                write_number(&first, number)?;
                write_number(&second, number)?;
                count.store(number, Ordering::Release);
            }
            Ok(())
        });
        Ok(Self { ends, finished, writing })
    }

    fn finished(&self) -> u64 {
        self.finished.load(Ordering::Acquire)
    }

    /// Returns when numbers were written that were not there before.
    async fn goes_on(&self) {
        let before = self.finished();
        while self.finished() < before + 2 && !self.writing.is_finished() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn end(self) -> std::io::Result<()> {
        self.ends.store(true, Ordering::Release);
        self.writing.await.map_err(std::io::Error::other)?
    }
}

/// A group, and which numbers were on the disks before and after it was cut.
struct Cut {
    group: VolumeGroupSnapshot,
    finished: u64,
    begun: u64,
}

async fn cut(t: &CheckContext, volumes: &[&Volume], writer: &Writer) -> Outcome<Cut> {
    writer.goes_on().await;
    let finished = writer.finished();
    let group = t.group_snapshot(volumes).await?;
    let begun = writer.finished() + 1;
    writer.goes_on().await;
    Ok(Cut { group, finished, begun })
}

async fn of_one_instant(t: &CheckContext) -> Outcome {
    let capability = t.capability();
    let (one, other) =
        (t.volume_for(capability.clone()).await?, t.volume_for(capability.clone()).await?);
    let first = t.placed(&one, capability.clone()).await?;
    let second = t.placed(&other, capability.clone()).await?;
    let (first_path, second_path) = (number_path(&first), number_path(&second));
    let writer = t.could(Writer::start(&first_path, &second_path), "write to", &first_path)?;
    let cuts = [cut(t, &[&one, &other], &writer).await, cut(t, &[&other, &one], &writer).await];
    // Whatever the calls returned: the writer must have ended before its volumes are withdrawn.
    t.could(writer.end().await, "write to", &first_path)?;
    t.withdrawn(&first).await?;
    t.withdrawn(&second).await?;
    for cut in cuts {
        judge(t, &cut?, [&one, &other], &capability).await?;
    }
    Ok(())
}

async fn judge(
    t: &CheckContext,
    cut: &Cut,
    [one, other]: [&Volume; 2],
    capability: &VolumeCapability,
) -> Outcome {
    let of = |volume: &Volume| {
        let is_its = |it: &&Snapshot| it.source_volume_id == volume.volume_id;
        t.some(cut.group.snapshots.iter().find(is_its), "a member for each volume")
    };
    let first = restored_number(t, of(one)?, capability).await?;
    let second = restored_number(t, of(other)?, capability).await?;
    let values = format!("{first} in the first volume and {second} in the second");
    t.expect(
        first == second || first == second + 1,
        format!("no later write without the earlier one, and none between: {values}"),
    )?;
    let (from, to) = (cut.finished, cut.begun);
    t.expect(
        second >= from && first <= to,
        format!(
            "what was durable before the call, and nothing from after it: {values}, {from}..{to}"
        ),
    )
}

async fn restored_number(
    t: &CheckContext,
    member: &Snapshot,
    capability: &VolumeCapability,
) -> Outcome<u64> {
    let copy = t.create(t.restore(member, capability.clone())).await?;
    let placed = t.placed(&copy, capability.clone()).await?;
    let path = number_path(&placed);
    let mut number = [0; LENGTH];
    let read = File::open(&path).and_then(|file| file.read_exact_at(&mut number, 0));
    t.could(read, "read", &path)?;
    t.withdrawn(&placed).await?;
    Ok(u64::from_le_bytes(number))
}
