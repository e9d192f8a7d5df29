//! Runs the checks that name a broken row, with and without the violation.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use csi_conformance::Plugin;
use csi_conformance::checks::sections;
use csi_conformance::internal_tests::InternalTests;
use csi_conformance::options::Options;
use csi_conformance::report::progress;
use csi_conformance::runner::{Planned, Ran, run_one, take_back};
use csi_conformance::verdict::{Verdict, verdicts};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::interceptor::Interceptor;
use crate::memory::{MemoryPlugin, Reach};
use crate::proxy::Proxy;
use crate::real::RealPlugin;
use crate::say;
use crate::violation::{Base, Violation};

/// Plugins in memory that are tried side by side.
const AT_ONCE: usize = 4;

pub(crate) struct Found {
    /// Checks that noticed, and named the row.
    by: Vec<&'static str>,
    /// The plugin without the violation did not pass.
    innocent_blamed: bool,
}

impl Found {
    pub(crate) fn caught(&self) -> bool {
        !self.by.is_empty() && !self.innocent_blamed
    }
}

/// The real plugin is tried one violation at a time, while those in memory go on beside it.
pub(crate) async fn verify(
    violations: &[&'static Violation],
    quiet: bool,
) -> Result<Vec<Found>, String> {
    let (real, pretended): (Vec<_>, Vec<_>) =
        violations.iter().copied().partition(|violation| violation.on == Base::Real);
    let (real, pretended) = tokio::join!(verify_real(&real), verify_in_memory(&pretended));
    let found: Vec<_> = real?.into_iter().chain(pretended?).collect();
    for (violation, found) in &found {
        print_result(violation, found, quiet);
    }
    Ok(found.into_iter().map(|(_, found)| found).collect())
}

type Tried = (&'static Violation, Found);

async fn verify_real(violations: &[&'static Violation]) -> Result<Vec<Tried>, String> {
    if violations.is_empty() {
        return Ok(Vec::new());
    }
    let plugin = RealPlugin::start().await;
    let options = |socket: &Path| plugin.options(socket);
    let blamed = blamed(violations, plugin.socket(), options).await?;
    let mut found = Vec::new();
    for violation in violations {
        let by = tried(violation, plugin.socket(), options).await?;
        found.push((*violation, by.judged(violation, &blamed)));
    }
    plugin.stop();
    Ok(found)
}

async fn verify_in_memory(violations: &[&'static Violation]) -> Result<Vec<Tried>, String> {
    let mut found = Vec::new();
    for reach in [Reach::Local, Reach::Shared, Reach::Spread] {
        let of_reach = violations.iter().copied().filter(|it| it.on == Base::Memory(reach));
        let of_reach: Vec<_> = of_reach.collect();
        let plugin = MemoryPlugin::start(reach)?;
        let blamed = blamed(&of_reach, plugin.socket(), |socket| plugin.options(socket)).await?;
        found.extend(verify_in_parallel(&of_reach, reach, &blamed).await?);
    }
    Ok(found)
}

async fn verify_in_parallel(
    violations: &[&'static Violation],
    reach: Reach,
    blamed: &BTreeSet<&'static str>,
) -> Result<Vec<Tried>, String> {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut running = JoinSet::new();
    for violation in violations.iter().copied() {
        let places = Arc::clone(&places);
        running.spawn(async move {
            // The semaphore is never closed.
            let _place = places.acquire_owned().await;
            let plugin = MemoryPlugin::start(reach)?;
            let by = tried(violation, plugin.socket(), |socket| plugin.options(socket)).await?;
            Ok::<_, String>((violation, by))
        });
    }
    let mut found = Vec::new();
    while let Some(done) = running.join_next().await {
        let (violation, by) = done.map_err(|error| error.to_string())??;
        found.push((violation, by.judged(violation, blamed)));
    }
    found.sort_by_key(|(violation, _)| violation.name);
    Ok(found)
}

/// Checks that fail although nothing is broken, out of all that these violations need.
async fn blamed(
    violations: &[&'static Violation],
    upstream: &Path,
    options: impl Fn(&Path) -> Options,
) -> Result<BTreeSet<&'static str>, String> {
    let honest = Proxy::start(upstream, Interceptor::default())?;
    let plugin = Plugin::connect(options(honest.socket())).await?;
    let mut seen = BTreeSet::new();
    let mut blamed = BTreeSet::new();
    for (section, check) in violations.iter().flat_map(|violation| naming(violation.breaks)) {
        if !seen.insert(check.name) {
            continue;
        }
        let ran = run_one(&plugin, section, check).await;
        if ran.broke() {
            say(&format!("without any violation:\n{}", progress(&ran)));
            blamed.insert(check.name);
        }
    }
    Ok(blamed)
}

/// Checks that noticed, and named the row.
struct By(Vec<&'static str>);

impl By {
    fn judged(self, violation: &Violation, blamed: &BTreeSet<&'static str>) -> Found {
        let plan = naming(violation.breaks);
        let innocent_blamed = plan.iter().any(|(_, check)| blamed.contains(check.name));
        Found { by: self.0, innocent_blamed }
    }
}

async fn tried(
    violation: &Violation,
    upstream: &Path,
    options: impl Fn(&Path) -> Options,
) -> Result<By, String> {
    let broken = Proxy::start(upstream, (violation.interceptor)())?;
    let ran = run(&naming(violation.breaks), options(broken.socket())).await?;
    // A plugin that only says so has not cleaned up.
    let honest = Proxy::start(upstream, Interceptor::default())?;
    let plugin = Plugin::connect(options(honest.socket())).await?;
    for ran in &ran {
        take_back(&plugin, ran).await;
    }
    let verdicts = verdicts(&ran, &InternalTests::default());
    let verdict = verdicts.into_iter().find(|(row, _)| row.id == violation.breaks);
    Ok(By(match verdict {
        Some((_, Verdict::Failed(failures))) => failures.iter().map(|(check, _)| *check).collect(),
        Some(_) | None => Vec::new(),
    }))
}

/// The checks that claim to prove the row.
fn naming(row: &str) -> Vec<Planned> {
    let all = sections().iter().flat_map(|it| it.checks.iter().map(move |check| (*it, check)));
    all.filter(|(_, check)| check.proves.contains(&row)).collect()
}

async fn run(plan: &[Planned], options: Options) -> Result<Vec<Ran>, String> {
    let plugin = Plugin::connect(options).await?;
    let mut ran = Vec::new();
    for (section, check) in plan {
        ran.push(run_one(&plugin, section, check).await);
    }
    Ok(ran)
}

fn print_result(violation: &Violation, found: &Found, quiet: bool) {
    let Violation { name, breaks, does, .. } = violation;
    if found.caught() {
        if !quiet {
            say(&format!("caught  {name}  [{breaks}]  by {}", found.by.join(", ")));
        }
    } else if found.innocent_blamed {
        say(&format!("BLAMED  {name}  [{breaks}]  a check fails without the violation"));
    } else {
        say(&format!("MISSED  {name}  [{breaks}]  the plugin {does}, and no check notices"));
    }
}
