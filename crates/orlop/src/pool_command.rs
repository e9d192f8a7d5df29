//! `orlop pool`: look at pools, and take over one that comes from another machine.
//!
//! Where a volume can be used is not in the pool: it follows from who serves it. What a pool
//! brings along from its old machine are publications to nodes there, and those are cleared.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use orlop_model::{Bytes, Error, Finding, Reason, Topology};
use orlop_pools::image::{Floor, ImagePool, ImagePoolConfig, Inspection, LastOwner, ServedBefore};

use crate::complain;
use crate::config::{self, Config, PoolConfig};
use crate::doctor::{
    FINDINGS, Line, NOT_EXAMINED, Printer, RepairOutcome, contents, hint_at_root, judged,
};
use crate::served_before::remember_served_pools;

const DOCTOR: &str = "orlop doctor --repair";
/// What the doctor calls a publication to a node that does not have the pool.
const FOREIGN_PUBLICATION: &str = "foreign-publication";

#[derive(clap::Subcommand)]
pub(crate) enum PoolCommand {
    /// List the configured pools, with their ids
    List(Around),

    /// Show a pool's id, the node that served it last, its volumes, and what is wrong with it
    Show {
        /// The pool's directory
        path: PathBuf,
        #[command(flatten)]
        around: Around,
    },

    /// Take over a pool whose disk comes from another machine; only shows what it would do
    /// without --yes
    Adopt {
        /// The pool's directory
        path: PathBuf,
        /// Clear publications to the old node, and record this one as the pool's node
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        around: Around,
    },
}

#[derive(clap::Args)]
pub(crate) struct Around {
    /// The TOML file that the daemon is started with; variables win over it
    #[arg(long, env = "ORLOP_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(crate) fn run(command: PoolCommand) -> ExitCode {
    let around = match &command {
        PoolCommand::List(around)
        | PoolCommand::Show { around, .. }
        | PoolCommand::Adopt { around, .. } => around,
    };
    let loaded = config::load_without_endpoint(around.config.as_deref()).and_then(|(config, _)| {
        // The other commands name a directory.
        match command {
            PoolCommand::List(_) => config::require_pool(&config)?,
            PoolCommand::Show { .. } | PoolCommand::Adopt { .. } => {}
        }
        Ok(config)
    });
    let mut config = match loaded {
        Ok(loaded) => loaded,
        Err(error) => return complain(NOT_EXAMINED, &error),
    };
    // Where the run directory cannot be read, pools are listed as they are.
    let _ = remember_served_pools(&mut config);
    let printer = match Printer::start() {
        Ok(printer) => printer,
        Err(error) => return complain(NOT_EXAMINED, &error),
    };
    let done = match command {
        PoolCommand::List(_) => Ok(list(&config, &printer)),
        PoolCommand::Show { path, .. } => show(&config, &path, &printer),
        PoolCommand::Adopt { path, yes, .. } => adopt(&config, &path, yes, &printer),
    };
    // Only now, as the pool's lock is gone.
    printer.finish();
    match done {
        Ok(code) => code,
        Err(error @ Error::Precondition(_)) => complain(FINDINGS, &error),
        Err(error) => {
            hint_at_root();
            complain(NOT_EXAMINED, &error)
        }
    }
}

fn list(config: &Config, printer: &Printer) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for pool in &config.pools {
        match pool {
            PoolConfig::Image(pool) => {
                let id = match ImagePool::id_at(&pool.path) {
                    Ok(Some(id)) => format!("id {id}{}", space(&pool.path)),
                    Ok(None) => match absent(pool) {
                        Some(before) => {
                            code = ExitCode::from(NOT_EXAMINED);
                            format!(
                                "absent: pool {} was served here since this machine started; mount \
                                 its disk",
                                before.id
                            )
                        }
                        None => "no pool yet".to_owned(),
                    },
                    // The others are listed all the same.
                    Err(error) => {
                        code = ExitCode::from(NOT_EXAMINED);
                        format!("cannot be read: {error}")
                    }
                };
                printer.say(format!("{} image {}: {id}", pool.name, pool.path.display()));
            }
            PoolConfig::Rbd(pool) => printer.say(format!("{} rbd {}", pool.name, pool.pool)),
        }
    }
    code
}

/// As far as it is known: the image of a managed pool is mounted while it is served.
fn space(path: &Path) -> String {
    match ImagePool::space_at(path) {
        Ok(Some((free, total))) => format!(", {} free of {}", Bytes(free), Bytes(total)),
        Ok(None) | Err(_) => String::new(),
    }
}

/// What is not here, and at no other path of the configuration either.
fn absent(pool: &ImagePoolConfig) -> Option<&ServedBefore> {
    let is_at = |path: &PathBuf, before: &ServedBefore| {
        ImagePool::id_at(path).is_ok_and(|id| id.as_ref() == Some(&before.id))
    };
    pool.served_before.iter().find(|before| !before.paths.iter().any(|path| is_at(path, before)))
}

fn show(config: &Config, path: &Path, printer: &Printer) -> orlop_model::Result<ExitCode> {
    let (_, mut inspection) = inspect(config, path)?;
    describe(path, &inspection, printer);
    Ok(print_findings(&mut inspection, printer, |finding| (judged(finding, false), DOCTOR))
        .exit_code())
}

fn adopt(
    config: &Config,
    path: &Path,
    yes: bool,
    printer: &Printer,
) -> orlop_model::Result<ExitCode> {
    let (pool, mut inspection) = inspect(config, path)?;
    describe(path, &inspection, printer);
    refuse_used(path, &inspection)?;
    refuse_copy(config, &pool.path, &inspection, printer)?;
    let report = print_findings(&mut inspection, printer, |finding| match finding.code {
        FOREIGN_PUBLICATION => (judged(finding, yes), "--yes"),
        _ => (judged(finding, false), DOCTOR),
    });
    let owner = LastOwner {
        name: pool.name.clone(),
        topology: pool.topology.clone(),
        run_stamp: None,
        run_dir: None,
    };
    if !yes {
        printer.say(format!(
            "nothing was changed; with --yes it is adopted by {}",
            shown(&pool.topology)
        ));
        return Ok(report.exit_code());
    }
    if report.failed {
        return Err(Error::precondition(format!(
            "cannot adopt the pool at {}: not all publications could be cleared, see above; mend \
             that and adopt it again",
            path.display()
        )));
    }
    // Last: until it is written, an interrupted adoption shows where the pool came from.
    inspection.set_last_owner(&owner)?;
    printer.say(format!("adopted by {}: serve it as pool {:?}", shown(&pool.topology), pool.name));
    Ok(report.exit_code())
}

/// With what the configuration says of the pool, if it has this pool.
fn inspect(config: &Config, path: &Path) -> orlop_model::Result<(ImagePoolConfig, Inspection)> {
    let looking = || format!("inspect the pool at {}", path.display());
    let path = path.canonicalize().map_err(|error| {
        let reason = format!("{error}; name a pool's directory, and mount the filesystem it is on");
        Error::failed(looking(), Reason::explained(reason, error))
    })?;
    let configured = image_pools(config).find(|pool| is_at(pool, &path)).cloned();
    let pool = configured.unwrap_or_else(|| ImagePoolConfig {
        path: path.clone(),
        name: "default".to_owned(),
        topology: config.topology.clone(),
        floor: Floor::Percent(0),
        overcommit_percent: 100,
        managed_size: None,
        create: false,
        served_before: Vec::new(),
        thaw_helper: None,
    });
    let inspection = ImagePool::inspect(&pool, &config.node_id)?
        .ok_or_else(|| Error::failed(looking(), "it has no orlop.pool, so it is not a pool"))?;
    Ok((pool, inspection))
}

fn image_pools(config: &Config) -> impl Iterator<Item = &ImagePoolConfig> {
    config.pools.iter().filter_map(|pool| match pool {
        PoolConfig::Image(pool) => Some(pool),
        PoolConfig::Rbd(_) => None,
    })
}

fn is_at(pool: &ImagePoolConfig, path: &Path) -> bool {
    pool.path.canonicalize().is_ok_and(|resolved| resolved == path)
}

fn describe(path: &Path, inspection: &Inspection, printer: &Printer) {
    printer.say(format!("pool at {}: id {}{}", path.display(), inspection.id, space(path)));
    match &inspection.last_owner {
        Some(before) => {
            printer.say(format!(
                "last served as pool {:?} by {}",
                before.name,
                shown(&before.topology)
            ));
        }
        None => printer.say("there is no record of which node served it last"),
    }
    printer.say(contents(inspection));
    for volume in &inspection.volumes {
        let nodes: Vec<&str> = volume.published.keys().map(|node| node.as_str()).collect();
        let published = match nodes.as_slice() {
            [] => String::new(),
            nodes => format!(", published to {}", nodes.join(", ")),
        };
        let name = volume.name.as_str();
        printer
            .say(format!("  {} {name:?}: {} bytes{published}", volume.id, volume.capacity_bytes));
    }
}

fn shown(topology: &Topology) -> String {
    let segments: Vec<String> =
        topology.segments().map(|(key, value)| format!("{key}={value}")).collect();
    segments.join(",")
}

fn refuse_used(path: &Path, inspection: &Inspection) -> orlop_model::Result<()> {
    if inspection.in_use {
        return Err(Error::precondition(format!(
            "cannot adopt the pool at {}: a daemon on this machine serves it",
            path.display()
        )));
    }
    Ok(())
}

/// Ids of volumes hold the pool's id, so two pools of one id cannot be distinguished.
fn refuse_copy(
    config: &Config,
    path: &Path,
    inspection: &Inspection,
    printer: &Printer,
) -> orlop_model::Result<()> {
    for other in image_pools(config).filter(|other| !is_at(other, path)) {
        let id = match ImagePool::id_at(&other.path) {
            Ok(id) => id,
            // No daemon serves it as it is, and one that does later refuses a copy.
            Err(error) => {
                printer.say(format!(
                    "whether pool {} is a copy of this one is not known: {error}",
                    other.name
                ));
                continue;
            }
        };
        if id.as_ref() == Some(&inspection.id) {
            return Err(Error::precondition(format!(
                "cannot adopt the pool: pool {} at {} has the id {} as well: one is a copy of the other, and only one \
                 can be served here",
                other.name,
                other.path.display(),
                inspection.id
            )));
        }
    }
    let in_use = ImagePool::copies_in_use(&inspection.id, path)?;
    if let Some(device) = in_use.first() {
        return Err(Error::precondition(format!(
            "cannot adopt the pool: {} is attached to a volume of another pool with the id {}: one \
             is a copy of the other, and only one can be served here",
            device.display(),
            inspection.id
        )));
    }
    Ok(())
}

/// What became of the findings.
#[derive(Default)]
struct PrintedFindings {
    left: bool,
    /// A repair was tried in vain, or a publication can only be cleared by hand.
    failed: bool,
}

impl PrintedFindings {
    fn exit_code(&self) -> ExitCode {
        if self.left { ExitCode::from(FINDINGS) } else { ExitCode::SUCCESS }
    }
}

/// Each line with what has to be said for its repair.
fn print_findings(
    inspection: &mut Inspection,
    printer: &Printer,
    mut judge: impl FnMut(Finding) -> (Line, &'static str),
) -> PrintedFindings {
    let mut report = PrintedFindings::default();
    for finding in std::mem::take(&mut inspection.findings) {
        let (line, repairing) = judge(finding);
        printer.say(line.text(repairing));
        report.left |= line.outcome != RepairOutcome::Repaired;
        report.failed |= line.outcome == RepairOutcome::Failed
            || (line.code == FOREIGN_PUBLICATION && line.outcome == RepairOutcome::ByHand);
    }
    report
}
