//! Runs checks, several at a time, each to its end and cleaned up after.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::call_log::Call;
use crate::check::{Check, Failure, Outcome, Section, Stop};
use crate::check_context::CheckContext;
use crate::checks::sections;
use crate::plugin::Plugin;
use crate::undo::Undo;

/// A check that is to be run, and where it belongs.
pub type Planned = (&'static Section, &'static Check);

#[derive(Debug, Clone)]
pub struct Ran {
    pub section: &'static Section,
    pub check: &'static Check,
    pub outcome: Outcome,
    /// Rules that hold for all answers and were broken by one on the way.
    pub findings: Vec<Failure>,
    pub calls: Vec<Call>,
    pub(crate) made: Vec<Undo>,
}

impl Ran {
    /// Nothing is known of any call.
    fn not_begun(section: &'static Section, check: &'static Check, stop: Stop) -> Self {
        let (findings, calls, made) = (Vec::new(), Vec::new(), Vec::new());
        Self { section, check, outcome: Err(stop), findings, calls, made }
    }

    /// Was any rule broken?
    pub fn broke(&self) -> bool {
        matches!(self.outcome, Err(Stop::Failed(_))) || !self.findings.is_empty()
    }
}

/// A check that is not done by then hangs.
const LONGEST: Duration = Duration::from_secs(300);

/// All checks that the options ask for.
pub fn planned(plugin: &Plugin) -> Vec<Planned> {
    let all =
        sections().iter().flat_map(|section| section.checks.iter().map(move |it| (*section, it)));
    all.filter(|(section, check)| plugin.options.wants(section, check)).collect()
}

/// Runs them and tells of each as it ends. The order of the result is that of the plan.
pub async fn run_all(
    plugin: &Plugin,
    planned: &[Planned],
    tell: &mut (dyn FnMut(&Ran) + Send),
) -> Vec<Ran> {
    let mut ran: Vec<Option<Ran>> = vec![None; planned.len()];
    let places = Arc::new(Semaphore::new(plugin.options.jobs.max(1)));
    let mut running = JoinSet::new();
    let together = planned.iter().enumerate().filter(|(_, (_, check))| !check.alone);
    for (number, (section, check)) in together {
        let (plugin, places) = (plugin.clone(), Arc::clone(&places));
        let (section, check) = (*section, *check);
        running.spawn(async move {
            // The semaphore is never closed.
            let _place = places.acquire_owned().await;
            (number, run_one(&plugin, section, check).await)
        });
    }
    while let Some(Ok((number, done))) = running.join_next().await {
        tell(&done);
        if let Some(place) = ran.get_mut(number) {
            *place = Some(done);
        }
    }
    for (number, (section, check)) in planned.iter().enumerate().filter(|(_, it)| it.1.alone) {
        let done = run_one(plugin, section, check).await;
        tell(&done);
        if let Some(place) = ran.get_mut(number) {
            *place = Some(done);
        }
    }
    ran.into_iter()
        .zip(planned)
        .map(|(ran, planned)| ran.unwrap_or_else(|| died(planned)))
        .collect()
}

/// A check that panicked is a fault of the suite; it must not look like a pass.
fn died((section, check): &Planned) -> Ran {
    let expected = "the check itself to come to an end".to_owned();
    let stop = Stop::Failed(Box::new(Failure { row: None, expected, call: None }));
    Ran::not_begun(section, check, stop)
}

pub async fn run_one(plugin: &Plugin, section: &'static Section, check: &'static Check) -> Ran {
    let needs = section.needs.iter().chain(check.needs);
    if let Some(unmet) = needs.into_iter().find(|it| !it.is_met(&plugin.features, &plugin.options))
    {
        return Ran::not_begun(section, check, Stop::NotApplicable(unmet.to_string()));
    }
    let check_context = CheckContext::new(plugin, check, &run_name());
    let outcome = match tokio::time::timeout(LONGEST, (check.run)(&check_context)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(check_context.failed(format!("an end within {LONGEST:?}"))),
    };
    // First of all: without its storage no plugin is ready, and nothing can be taken back.
    let mended = check_context.mend_storage();
    if matches!(outcome, Err(Stop::Failed(_))) {
        revive(plugin).await;
    }
    let cleaned = mended.and(check_context.clean_up().await);
    // What went wrong first is what matters; a rule that does not apply still has to clean up.
    let outcome = match (outcome, cleaned) {
        (Ok(()) | Err(Stop::NotApplicable(_)), Err(failed)) => Err(failed),
        (outcome, _) => outcome,
    };
    let (findings, calls, made) =
        (check_context.findings(), check_context.calls(), check_context.made());
    Ran { section, check, outcome, findings, calls, made }
}

/// A plugin that a call has killed would fail all checks that follow.
async fn revive(plugin: &Plugin) {
    if let Some(restarts) = &plugin.options.hooks.restarts
        && !Plugin::is_ready(&plugin.options).await
    {
        // If it does not come back, the next check says so.
        restarts().ok();
    }
}

/// Takes back all that a check did, once more: at a plugin that does what it says, after the check
/// ran against one that does not. What is still there after that shows as left behind.
pub async fn take_back(plugin: &Plugin, ran: &Ran) {
    let check_context = CheckContext::resumed(plugin, ran.check, ran.made.clone());
    check_context.clean_up().await.ok();
}

/// Differs between runs at the same plugin, so that leftovers of one do not disturb another.
fn run_name() -> String {
    use std::time::{SystemTime, UNIX_EPOCH};
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("c{:x}", now.as_micros() & 0xff_ffff_ffff)
}

#[cfg(test)]
#[path = "runner_tests.rs"]
mod tests;
