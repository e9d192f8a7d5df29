//! `orlop doctor`: what no longer belongs together, said in words, and put right if asked to.
//!
//! The locks of the pool and of the run directory decide: where a daemon holds one, only looking is
//! safe. What a look beside a daemon finds must be there a moment later as well, for a call under way
//! leaves the same traces.

mod bundle;
mod examination;
mod report;
mod run_directory;

use std::path::PathBuf;
use std::process::ExitCode;

use orlop_model::{Finding, HealthReason, Remedy};

use crate::config;
use crate::served_before::remember_served_pools;
use bundle::{Bundle, Findings};
pub(crate) use examination::Examination;
use examination::{ExaminedPool, Found};
pub(crate) use report::{
    FINDINGS, Line, NOT_EXAMINED, Printer, RepairOutcome, contents, hint, hint_at_root,
};

#[derive(clap::Args)]
#[command(
    after_help = "Needs root, and the configuration of the daemon: its ORLOP_* variables or --config. The run\n\
    directory of the daemon that served a pool last is found by itself, if it can be found.\n\n\
    Exit codes: 0 all is sound, 1 something is inconsistent, 2 something could not be examined."
)]
pub(crate) struct DoctorArguments {
    /// The TOML file that the daemon is started with; variables win over it. Without both /etc/orlop/orlop.toml,
    /// if it is there
    #[arg(long, env = "ORLOP_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,

    /// Repair what can be repaired without losing anything, and print each step. Only while no
    /// daemon serves the pool
    #[arg(long)]
    repair: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Write a support bundle: a tar file with the settings, the findings, the end of the log, versions, mounts and
    /// node records. It has no secrets, and never replaces a file
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,

    /// The file with the daemon's log for the bundle, in place of the journal
    #[arg(long, value_name = "FILE", requires = "bundle")]
    log: Option<PathBuf>,
}

pub(crate) fn run(arguments: &DoctorArguments) -> ExitCode {
    let loaded =
        config::load_without_endpoint(arguments.config.as_deref()).and_then(|(config, sockets)| {
            config::require_pool(&config)?;
            Ok((config, sockets))
        });
    let (mut config, sockets) = match loaded {
        Ok(loaded) => loaded,
        Err(error) => return crate::complain(NOT_EXAMINED, &error),
    };
    if let Some(Err(error)) = arguments.bundle.as_deref().map(bundle::check_target) {
        return crate::complain(NOT_EXAMINED, &error);
    }
    // If the run directory cannot be read, the examination of the machine reports it.
    let _ = remember_served_pools(&mut config);
    let printer = match Printer::start() {
        Ok(printer) => printer,
        Err(error) => return crate::complain(NOT_EXAMINED, &error),
    };
    let print_summary = |pool: &ExaminedPool| {
        if !arguments.json {
            printer.say(report::summary(pool));
        }
    };
    let mut examination = Examination::of(&config, 0, sockets.as_ref(), print_summary);
    let findings = std::mem::take(&mut examination.findings);
    let judge = |found: Found| Line { pool: found.pool, ..judged(found.finding, arguments.repair) };
    let lines: Vec<Line> = findings.into_iter().map(judge).collect();
    let mut code = report::exit_code(&examination, &lines);
    let document = report::document(&examination, &lines);
    let conclusion = report::conclusion(&examination, &lines);
    match arguments.json {
        true => printer.say(&document),
        false => conclusion.iter().for_each(|line| printer.say(line)),
    }
    let summaries = examination.pools.iter().map(report::summary);
    let findings = Findings {
        text: summaries.chain(conclusion).map(|line| line + "\n").collect(),
        json: document,
        run_dirs: examination.machine.iter().map(|directory| directory.path.clone()).collect(),
    };
    // With its locks, which a daemon may wait for.
    drop(examination);
    let collect = || Bundle::collect(&config, sockets.as_ref(), findings, arguments.log.as_deref());
    match arguments.bundle.as_deref().map(|path| collect().write(path)) {
        None => {}
        Some(Ok(summary)) if arguments.json => hint(&summary),
        Some(Ok(summary)) => printer.say(summary),
        Some(Err(error)) => {
            hint(&error.to_string());
            code = NOT_EXAMINED;
        }
    }
    printer.finish();
    if code == NOT_EXAMINED {
        hint_at_root();
    }
    ExitCode::from(code)
}

/// Repaired, if that is wanted and can be done.
pub(crate) fn judged(finding: Finding, repair: bool) -> Line {
    let reason = finding.health_reason().map(HealthReason::as_str);
    let Finding { code, subject, problem, remedy } = finding;
    let (remedy, outcome) = match remedy {
        Remedy::ByHand(advice) => (advice, RepairOutcome::ByHand),
        Remedy::Repair(it) if !repair => (it.act, RepairOutcome::Repairable),
        Remedy::Repair(it) => {
            let act = it.act.clone();
            match it.perform() {
                Ok(()) => (act, RepairOutcome::Repaired),
                Err(error) => (format!("{act}: {error}"), RepairOutcome::Failed),
            }
        }
    };
    Line { code, pool: None, reason, subject, problem, remedy, outcome }
}
