//! A snapshot of several volumes at one instant.

use super::Scene;
use super::writers::{Layout, NumberWriter, number_at};
use super::{SMALLEST_VOLUME, file_in};
use crate::demo::calls::{DemoVolume, Source};
use crate::demo::failure::{Failure, check};

const MEMBERS: usize = 3;
const ROUNDS: u64 = 5;

impl Scene<'_> {
    pub(super) fn snapshot_group(&mut self) -> Result<(), Failure> {
        self.screen.begin("group");
        let mut members = Vec::new();
        for number in 1..=MEMBERS {
            let name = format!("member-{number}");
            let member = self.calls.create(&name, SMALLEST_VOLUME, &Source::Nothing)?;
            self.mount(&member)?;
            members.push(member);
        }
        let interrupt = self.story.interrupt;
        let writer = NumberWriter::start(members.iter().map(file_in).collect(), Layout::Replace)?;
        writer.goes_on(ROUNDS, interrupt)?;
        let usual = writer.take_longest();
        let before = writer.done();
        let snapshots = self.calls.group_snapshot("group", &members)?;
        writer.goes_on(1, interrupt)?;
        let paused = writer.take_longest().saturating_sub(usual);
        let after = writer.finish()?;
        let numbers = self.restored_numbers(&members, &snapshots)?;
        let is_one_instant = numbers.is_sorted_by(|one, next| one >= next)
            && numbers.first().zip(numbers.last()).is_some_and(|(first, last)| {
                first - last <= 1 && *last >= before && *first <= after
            });
        check(is_one_instant, || format!("the snapshots are of different instants: {numbers:?}"))?;
        let text = format!(
            "{MEMBERS} volumes at one instant; their writer was held for {:.1} ms, at write {}",
            paused.as_secs_f64() * 1000.0,
            numbers.first().copied().unwrap_or_default()
        );
        self.screen.done(&text)
    }

    fn restored_numbers(
        &mut self,
        members: &[DemoVolume],
        snapshots: &std::collections::BTreeMap<String, String>,
    ) -> Result<Vec<u64>, Failure> {
        let mut numbers = Vec::new();
        for member in members {
            let snapshot = snapshots.get(&member.id);
            let snapshot = snapshot.ok_or_else(|| {
                Failure::Untrue(format!("{} has no snapshot in the group", member.name))
            })?;
            let name = format!("{}-restored", member.name);
            let copy = self.calls.create(&name, SMALLEST_VOLUME, &Source::Snapshot(snapshot))?;
            self.mount(&copy)?;
            let number = number_at(&file_in(&copy), 0)?;
            numbers
                .push(number.ok_or_else(|| Failure::Untrue(format!("{name} has half a number")))?);
        }
        Ok(numbers)
    }
}
