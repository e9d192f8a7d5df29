//! `csi-conformance --endpoint unix:///csi/csi.sock`

mod cli;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use csi_conformance::known_deviations::KnownDeviations;
use csi_conformance::report::{json, markdown, progress, summary};
use csi_conformance::runner::{Ran, planned, run_all};
use csi_conformance::verdict::{Verdicts, verdicts};
use csi_conformance::{Plugin, checks};

use cli::Arguments;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.list {
        return finish(list());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(run(arguments)),
        Err(error) => Err(error.to_string()),
    };
    finish(outcome)
}

/// 0: nothing was broken; 1: something was; 2: the suite could not be run.
fn finish(outcome: Result<bool, String>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            say(&format!("csi-conformance: {error}"));
            ExitCode::from(2)
        }
    }
}

/// A closed terminal is no error.
fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn list() -> Result<bool, String> {
    for section in checks::sections() {
        say(&format!("{} ({})", section.title, section.service));
        for check in section.checks {
            say(&format!("  {}  [{}]", check.name, check.proves.join(" ")));
            say(&format!("      {}", check.does));
        }
    }
    Ok(true)
}

async fn run(arguments: Arguments) -> Result<bool, String> {
    let options = arguments.options()?;
    if arguments.ready {
        return Ok(Plugin::is_ready(&options).await);
    }
    let inside = arguments.inside()?;
    let known = arguments.known()?;
    let quiet = arguments.quiet;
    let plugin = Plugin::connect(options).await?;
    say(&format!("plugin {} {}", plugin.features().name, plugin.features().version));
    let plan = planned(&plugin);
    if plan.is_empty() {
        return Err("no check has that name, row, call or service (see --list)".to_owned());
    }
    let mut tell = |ran: &Ran| {
        if !quiet || ran.broke() {
            say(&progress(ran));
        }
    };
    let ran = run_all(&plugin, &plan, &mut tell).await;
    let verdicts = verdicts(&ran, &inside);
    write_reports(&arguments, &plugin, &verdicts, &ran, known.as_ref())?;
    say(&summary(&verdicts, &ran));
    Ok(match &known {
        Some(known) => agrees(known, &verdicts),
        None => !ran.iter().any(Ran::broke),
    })
}

fn agrees(known: &KnownDeviations, verdicts: &Verdicts) -> bool {
    let disagreements = known.disagreements(verdicts);
    disagreements.iter().for_each(|it| say(it));
    disagreements.is_empty()
}

fn write_reports(
    arguments: &Arguments,
    plugin: &Plugin,
    verdicts: &Verdicts,
    ran: &[Ran],
    known: Option<&KnownDeviations>,
) -> Result<(), String> {
    let write = |path: &std::path::Path, text: String| {
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
    };
    if let Some(path) = &arguments.json {
        write(path, format!("{:#}\n", json(plugin.features(), verdicts, ran)))?;
    }
    if let Some(path) = &arguments.markdown {
        let about = arguments.about()?;
        write(path, markdown(&arguments.title, &about, plugin.features(), verdicts, known))?;
    }
    Ok(())
}
