//! The order of the steps, and what they share.

mod changed;
mod copies;
mod group;
mod kill;
mod limit;
mod writers;

use std::path::{Path, PathBuf};

use orlop_model::Bytes;
use orlop_sys::{file, mounts};

use super::MIB;
use super::calls::{Calls, DemoVolume, Source};
use super::contents::Contents;
use super::daemon::DemoDaemon;
use super::directory::{DemoDirectory, POOL};
use super::failure::{Failure, check};
use super::interrupt::Interrupt;
use super::screen::Screen;
use limit::LimitedGroup;

/// mkfs.xfs makes none that is smaller than 300 MiB.
const SMALLEST_VOLUME: u64 = 512 * MIB;
const DATA: &str = "data";
const FIRST_SEED: u64 = 1;

/// What there is to tell about.
pub(super) struct Story<'a> {
    /// How much is written first.
    bytes: u64,
    directory: &'a DemoDirectory,
    interrupt: &'a Interrupt,
}

/// What each step has: the daemon, and the volume that it is about.
struct Scene<'a> {
    story: &'a Story<'a>,
    screen: &'a mut Screen,
    daemon: DemoDaemon,
    calls: Calls,
    data: DemoVolume,
    contents: Contents,
    /// All that were mounted, and are to be unmounted at the end.
    mounted: Vec<DemoVolume>,
}

impl<'a> Story<'a> {
    pub(super) fn new(bytes: u64, directory: &'a DemoDirectory, interrupt: &'a Interrupt) -> Self {
        Self { bytes, directory, interrupt }
    }

    pub(super) fn tell(&self, screen: &mut Screen) -> Result<(), Failure> {
        let limited = LimitedGroup::new(self.directory);
        let mut scene = self.begin(screen, limited.as_ref().ok())?;
        let first = scene.take_snapshots()?;
        let before = scene.contents.clone();
        let overwritten = scene.overwrite()?;
        scene.restore(&first, &before)?;
        scene.write_to_clone()?;
        scene.show_changed(&first, &overwritten)?;
        scene.snapshot_group()?;
        scene.grow()?;
        scene.limit_writer(limited.as_ref())?;
        let scene = scene.kill_daemon(limited.as_ref().ok())?;
        scene.end()
    }

    fn begin<'s>(
        &'s self,
        screen: &'s mut Screen,
        limited: Option<&LimitedGroup>,
    ) -> Result<Scene<'s>, Failure> {
        let volume = (2 * self.bytes).max(SMALLEST_VOLUME);
        // Sparse: it may be larger than what is free around it.
        let image = 4 * volume + 4 * self.bytes + 2 * SMALLEST_VOLUME;
        screen.begin("start");
        DemoDaemon::write_settings(self.directory, image)?;
        let cgroup = limited.map(LimitedGroup::name);
        let (daemon, calls) = DemoDaemon::start(self.directory.path(), cgroup, self.interrupt)?;
        let pool = self.pool_mount()?;
        screen.done(&format!(
            "daemon {} serves a managed pool: an XFS image of {}, whose copies share data",
            daemon.id(),
            Bytes(file::space(&pool).map_err(Failure::cannot("inspect the pool"))?.total)
        ))?;

        screen.begin("create");
        let data = calls.create(DATA, volume, &Source::Nothing)?;
        check(data.bytes >= volume, || format!("the volume has {} bytes", data.bytes))?;
        screen.done(&format!("a volume of {}, formatted", Bytes(data.bytes)))?;

        screen.begin("mount");
        calls.mount(&data)?;
        let mount = mounts::mount_at(&data.target).map_err(Failure::cannot("list mounts"))?;
        let found = mount.map_or("nothing".to_owned(), |entry| entry.fs_type);
        check(found == "xfs", || format!("{found} is mounted at {}", data.target.display()))?;
        screen.done(&format!("{found} at {}", data.target.display()))?;

        let contents = self.write(screen, &data)?;
        let mounted = vec![data.clone()];
        Ok(Scene { story: self, screen, daemon, calls, data, contents, mounted })
    }

    fn write(&self, screen: &mut Screen, data: &DemoVolume) -> Result<Contents, Failure> {
        screen.begin("write");
        let began = std::time::Instant::now();
        let path = data.target.join(DATA);
        let mut progress = Counter::new(screen, self.bytes / MIB);
        let contents = Contents::write(
            &path,
            self.bytes,
            FIRST_SEED,
            (self.interrupt, &mut |blocks| progress.add(blocks)),
        )?;
        let rate = rate(self.bytes, began.elapsed());
        screen.done(&format!(
            "{} at {}/s, synced; checksum {}",
            Bytes(self.bytes),
            Bytes(rate),
            contents.checksum()
        ))?;
        Ok(contents)
    }

    /// Where the filesystem of the pool is mounted.
    fn pool_mount(&self) -> Result<PathBuf, Failure> {
        let below = self.directory.path().join(POOL);
        let all = mounts::all_mounts().map_err(Failure::cannot("list mounts"))?;
        let mut points = all.into_iter().map(|entry| entry.mount_point);
        let found = points.find(|point| point.starts_with(&below));
        found.ok_or_else(|| Failure::Untrue("the image of the pool is not mounted".to_owned()))
    }

    fn free_space(&self) -> Result<u64, Failure> {
        let space = file::space(&self.pool_mount()?);
        Ok(space.map_err(Failure::cannot("inspect the pool"))?.free)
    }
}

impl Scene<'_> {
    fn path(&self) -> PathBuf {
        file_in(&self.data)
    }

    fn mount(&mut self, volume: &DemoVolume) -> Result<(), Failure> {
        self.calls.mount(volume)?;
        self.mounted.push(volume.clone());
        Ok(())
    }

    /// Compares the file of a volume with what it should hold.
    fn compare(&mut self, contents: &Contents, path: &Path, whose: &str) -> Result<(), Failure> {
        let mut progress = Counter::new(self.screen, self.story.bytes / MIB);
        let interrupt = self.story.interrupt;
        contents.compare(path, whose, (interrupt, &mut |blocks| progress.add(blocks)))
    }

    fn grow(&mut self) -> Result<(), Failure> {
        self.screen.begin("grow");
        let size = |at: &Path| {
            let space = file::space(at).map_err(Failure::cannot("inspect a volume"));
            space.map(|space| space.total)
        };
        let (before, wanted) = (size(&self.data.target)?, 2 * self.data.bytes);
        self.calls.grow(&self.data, wanted)?;
        let after = size(&self.data.target)?;
        // The rest is the filesystem's log and tables.
        check(after > wanted / 10 * 9, || format!("the filesystem has {after} bytes of {wanted}"))?;
        let text = format!("from {} to {} while it is mounted", Bytes(before), Bytes(after));
        self.screen.done(&text)
    }

    /// Everything is unmounted by the daemon, and the daemon stopped.
    fn end(self) -> Result<(), Failure> {
        self.screen.begin("stop");
        for volume in &self.mounted {
            self.calls.unmount(volume)?;
        }
        self.daemon.stop()?;
        let count = self.mounted.len();
        self.screen.done(&format!("{count} volumes unmounted, the daemon stopped"))
    }
}

fn file_in(volume: &DemoVolume) -> PathBuf {
    volume.target.join(DATA)
}

/// Bytes in a second.
fn rate(bytes: u64, took: std::time::Duration) -> u64 {
    let micros = took.as_micros().max(1);
    u64::try_from(u128::from(bytes) * 1_000_000 / micros).unwrap_or(u64::MAX)
}

/// How many blocks of a step are done.
struct Counter<'a> {
    screen: &'a mut Screen,
    done: u64,
    all: u64,
}

impl<'a> Counter<'a> {
    fn new(screen: &'a mut Screen, all: u64) -> Self {
        Self { screen, done: 0, all }
    }

    fn add(&mut self, blocks: u64) {
        self.done += blocks;
        let (done, all) = (self.done, self.all.max(1));
        self.screen.progress(|| format!("{} %", (100 * done / all).min(100)));
    }
}
