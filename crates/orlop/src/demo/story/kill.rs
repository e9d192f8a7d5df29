//! The daemon is killed while a volume is written to.

use super::limit::LimitedGroup;
use super::writers::{Layout, NumberWriter, number_at};
use super::{Scene, file_in};
use crate::demo::daemon::DemoDaemon;
use crate::demo::failure::{Failure, check};

const RECORDS: u64 = 20;

impl Scene<'_> {
    pub(super) fn kill_daemon(mut self, limited: Option<&LimitedGroup>) -> Result<Self, Failure> {
        self.screen.begin("kill -9");
        let (directory, interrupt) = (self.story.directory.path(), self.story.interrupt);
        let cgroup = limited.map(LimitedGroup::name);
        let journal = self.data.target.join("journal");
        let objects = |scene: &Self| {
            let mut all = scene.calls.list_volumes()?;
            all.extend(scene.calls.list_snapshots()?);
            all.sort_unstable();
            Ok::<_, Failure>(all)
        };
        let known = objects(&self)?;
        let writer = NumberWriter::start(vec![journal.clone()], Layout::Append)?;
        writer.goes_on(RECORDS, interrupt)?;
        self.daemon.kill()?;
        let killed_at = writer.done();
        writer.goes_on(RECORDS, interrupt)?;
        let without = writer.done() - killed_at;
        (self.daemon, self.calls) = DemoDaemon::start(directory, cgroup, interrupt)?;
        writer.goes_on(RECORDS, interrupt)?;
        let found = objects(&self)?;
        check(found == known, || {
            format!(
                "{} volumes and snapshots of {} are there after the restart",
                found.len(),
                known.len()
            )
        })?;
        let written = writer.finish()?;
        // The new daemon takes the volume down and brings it up again: so nothing comes from memory.
        self.calls.unmount(&self.data)?;
        self.calls.mount(&self.data)?;
        for number in 1..=written {
            let there = number_at(&journal, number - 1)?;
            check(there == Some(number), || format!("write {number} of {written} is lost"))?;
        }
        let contents = self.contents.clone();
        self.compare(&contents, &file_in(&self.data), "the volume after the restart")?;
        let text = format!(
            "of the daemon: the writer goes on ({without} writes without one), a new daemon takes over;\n\
             {} volumes and snapshots, {written} synced writes and all data are there: nothing lost",
            known.len()
        );
        self.screen.done(&text)?;
        Ok(self)
    }
}
