//! Runs the checks that name a broken row, with and without the violation.

use csi_conformance::Plugin;
use csi_conformance::check::Stop;
use csi_conformance::checks::chapters;
use csi_conformance::inside::Inside;
use csi_conformance::options::Options;
use csi_conformance::report::progress;
use csi_conformance::runner::{Planned, Ran, run_one};
use csi_conformance::verdict::{Verdict, verdicts};

use crate::memory::MemoryPlugin;
use crate::proxy::Proxy;
use crate::real::RealPlugin;
use crate::rig::Rig;
use crate::say;
use crate::violation::{Base, Violation};

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

pub(crate) async fn hunt(
    violations: &[&'static Violation],
    quiet: bool,
) -> Result<Vec<Found>, String> {
    let mut found = Vec::new();
    let mut real: Option<RealPlugin> = None;
    for violation in violations {
        let outcome = match violation.on {
            Base::Memory(reach) => {
                let plugin = MemoryPlugin::start(reach)?;
                tried(violation, plugin.socket(), |socket| plugin.options(socket)).await?
            }
            Base::Real => {
                let plugin = match real.take() {
                    Some(plugin) => plugin,
                    None => RealPlugin::start().await,
                };
                let outcome =
                    tried(violation, plugin.socket(), |socket| plugin.options(socket)).await;
                real = Some(plugin);
                outcome?
            }
        };
        tell(violation, &outcome, quiet);
        found.push(outcome);
    }
    if let Some(plugin) = real {
        plugin.stop();
    }
    Ok(found)
}

async fn tried(
    violation: &Violation,
    upstream: &std::path::Path,
    options: impl Fn(&std::path::Path) -> Options,
) -> Result<Found, String> {
    let plan = naming(violation.breaks);
    let honest = Proxy::start(upstream, Rig::default())?;
    let blamed = run(&plan, options(honest.socket())).await?;
    let blamed: Vec<_> = blamed.iter().filter(|it| is_failure(it)).collect();
    for ran in &blamed {
        say(&format!("without any violation:\n{}", progress(ran)));
    }
    let broken = Proxy::start(upstream, (violation.rig)())?;
    let ran = run(&plan, options(broken.socket())).await?;
    let verdicts = verdicts(&ran, &Inside::default());
    let verdict = verdicts.into_iter().find(|(row, _)| row.id == violation.breaks);
    let by = match verdict {
        Some((_, Verdict::Failed(failures))) => failures.iter().map(|(check, _)| *check).collect(),
        Some(_) | None => Vec::new(),
    };
    Ok(Found { by, innocent_blamed: !blamed.is_empty() })
}

/// The checks that claim to prove the row.
fn naming(row: &str) -> Vec<Planned> {
    let all = chapters().iter().flat_map(|it| it.checks.iter().map(move |check| (*it, check)));
    all.filter(|(_, check)| check.proves.contains(&row)).collect()
}

async fn run(plan: &[Planned], options: Options) -> Result<Vec<Ran>, String> {
    let plugin = Plugin::connect(options).await?;
    let mut ran = Vec::new();
    for (chapter, check) in plan {
        ran.push(run_one(&plugin, chapter, check).await);
    }
    Ok(ran)
}

fn is_failure(ran: &Ran) -> bool {
    matches!(ran.outcome, Err(Stop::Failed(_)))
}

fn tell(violation: &Violation, found: &Found, quiet: bool) {
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
