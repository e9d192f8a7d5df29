//! `orlop pool`: look at pools, and take over one that comes from another machine.
//!
//! Where a volume can be used is not in the pool: it follows from who serves it. What a pool
//! brings along from its old machine are publications to nodes there, and those are cleared.

mod listing;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use orlop_client::Format;
use orlop_model::{BehindDevice, Error, Finding, LabelledDevice, Reason, Topology};
use orlop_pools::image::{Floor, ImagePool, ImagePoolConfig, LastOwner, ServedBefore};
use orlop_pools::lvm::LvmPool;
use serde::Serialize;

use crate::check::id_of;
use crate::complain;
use crate::config::{self, Config, PoolConfig};
use crate::doctor::{
    FINDINGS, Line, NOT_EXAMINED, Printer, RepairOutcome, contents, hint_at_root, judged,
};
use crate::inspection::Inspection;
use crate::reading::within_timeout;
use crate::served_before::remember_served_pools;
use listing::{ListedPool, ShownPool, space, space_text};

const DOCTOR: &str = "orlop doctor --repair";
/// What the doctor calls a publication to a node that does not have the pool.
const FOREIGN_PUBLICATION: &str = "foreign-publication";

#[derive(clap::Subcommand)]
pub(crate) enum PoolCommand {
    /// Show how the pools of a running daemon are, and what they have: free, stored, shared, promised
    Status(orlop_client::PoolStatusArguments),

    #[command(flatten)]
    Directory(DirectoryCommand),
}

/// These read the pools themselves, whether or not a daemon serves them.
#[derive(clap::Subcommand)]
pub(crate) enum DirectoryCommand {
    /// List the configured pools, with their ids, also while no daemon runs
    List {
        #[command(flatten)]
        around: Around,
        #[command(flatten)]
        form: Form,
    },

    /// Show a pool's id, the node that served it last, its volumes, and what is wrong with it
    Show {
        /// The pool's directory; or lvm:GROUP/THIN-POOL, for a pool in a volume group
        #[arg(value_name = "POOL")]
        path: PathBuf,
        #[command(flatten)]
        around: Around,
        #[command(flatten)]
        form: Form,
    },

    /// Take over a pool whose disk comes from another machine; only shows what it would do
    /// without --yes
    Adopt {
        /// The pool's directory; or lvm:GROUP/THIN-POOL, for a pool in a volume group
        #[arg(value_name = "POOL")]
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
    /// The TOML file that the daemon is started with; variables win over it. Without both /etc/orlop/orlop.toml,
    /// if it is there
    #[arg(long, env = "ORLOP_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(clap::Args)]
pub(crate) struct Form {
    /// How to show the result
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t)]
    output: Format,
}

pub(crate) fn run(command: DirectoryCommand) -> ExitCode {
    let around = match &command {
        DirectoryCommand::List { around, .. }
        | DirectoryCommand::Show { around, .. }
        | DirectoryCommand::Adopt { around, .. } => around,
    };
    let loaded = config::load_without_endpoint(around.config.as_deref()).and_then(|(config, _)| {
        // The other commands name a directory.
        match command {
            DirectoryCommand::List { .. } => config::require_pool(&config)?,
            DirectoryCommand::Show { .. } | DirectoryCommand::Adopt { .. } => {}
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
        DirectoryCommand::List { form, .. } => Ok(list(&config, form.output, &printer)),
        DirectoryCommand::Show { path, form, .. } => show(&config, &path, form.output, &printer),
        DirectoryCommand::Adopt { path, yes, .. } => adopt(&config, &path, yes, &printer),
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

fn list(config: &Config, format: Format, printer: &Printer) -> ExitCode {
    let pools: Vec<ListedPool> = config.pools.iter().map(ListedPool::of).collect();
    let is_any_unread = pools.iter().any(|pool| pool.problem.is_some());
    let ids = pools.iter().filter_map(|pool| pool.id.clone()).collect();
    let lines: Vec<String> = pools.iter().map(ListedPool::line).collect();
    print(printer, format, ids, &pools, &lines);
    if is_any_unread { ExitCode::from(NOT_EXAMINED) } else { ExitCode::SUCCESS }
}

/// Prints the whole result at once. Ids may be none, which prints nothing.
fn print(
    printer: &Printer,
    format: Format,
    ids: Vec<String>,
    value: &impl Serialize,
    lines: &[String],
) {
    let text = orlop_client::rendered(format, ids, value, lines.join("\n"));
    if !text.is_empty() {
        printer.say(text.trim_end());
    }
}

/// What is not here, and at no other path of the configuration either.
fn absent(pool: &ImagePoolConfig) -> Option<&ServedBefore> {
    let is_at = |path: &PathBuf, before: &ServedBefore| {
        ImagePool::id_at(path).is_ok_and(|id| id.as_ref() == Some(&before.id))
    };
    pool.served_before.iter().find(|before| !before.paths.iter().any(|path| is_at(path, before)))
}

fn show(
    config: &Config,
    path: &Path,
    format: Format,
    printer: &Printer,
) -> orlop_model::Result<ExitCode> {
    let (pool, mut inspection) = inspect(config, path)?;
    let mut lines = description(&pool, &inspection);
    let findings: Vec<Line> = std::mem::take(&mut inspection.findings)
        .into_iter()
        .map(|finding| judged(finding, false))
        .collect();
    lines.extend(findings.iter().map(|line| line.text(DOCTOR)));
    let shown = ShownPool::of(&pool, &inspection, &findings);
    print(printer, format, vec![inspection.id.to_string()], &shown, &lines);
    let is_sound = findings.is_empty();
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::from(FINDINGS) })
}

fn adopt(
    config: &Config,
    path: &Path,
    yes: bool,
    printer: &Printer,
) -> orlop_model::Result<ExitCode> {
    let (pool, mut inspection) = inspect(config, path)?;
    description(&pool, &inspection).into_iter().for_each(|line| printer.say(line));
    refuse_used(&pool, &inspection)?;
    refuse_copy(config, &pool, &inspection, printer)?;
    let report = print_findings(&mut inspection, printer, |finding| match finding.code {
        FOREIGN_PUBLICATION => (judged(finding, yes), "--yes"),
        _ => (judged(finding, false), DOCTOR),
    });
    let owner = LastOwner {
        name: pool.name().to_owned(),
        topology: config.topology.clone(),
        run_stamp: None,
        run_dir: None,
    };
    if !yes {
        printer.say(format!(
            "nothing was changed; with --yes it is adopted by {}",
            shown(&owner.topology)
        ));
        return Ok(report.exit_code());
    }
    if report.failed {
        return Err(Error::precondition(format!(
            "cannot adopt the pool at {}: not all publications could be cleared, see above; mend \
             that and adopt it again",
            pool.place()
        )));
    }
    // Last: until it is written, an interrupted adoption shows where the pool came from.
    inspection.set_last_owner(&owner)?;
    printer.say(format!(
        "adopted by {}: serve it as pool {:?}",
        shown(&owner.topology),
        owner.name
    ));
    Ok(report.exit_code())
}

/// With what the configuration says of the pool, if it has this pool.
fn inspect(config: &Config, path: &Path) -> orlop_model::Result<(PoolConfig, Inspection)> {
    match path.to_str().and_then(|text| text.strip_prefix("lvm:")) {
        Some(place) => inspect_thin_pool(config, place),
        None => inspect_directory(config, path),
    }
}

fn inspect_directory(
    config: &Config,
    path: &Path,
) -> orlop_model::Result<(PoolConfig, Inspection)> {
    let looking = || format!("inspect the pool at {}", path.display());
    let path = path.canonicalize().map_err(|error| {
        let reason = format!(
            "{error}; name a pool's directory, and mount the filesystem it is on; for a pool in a volume group say \
             lvm:GROUP/THIN-POOL"
        );
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
    Ok((PoolConfig::Image(pool), inspection.into()))
}

fn inspect_thin_pool(
    config: &Config,
    place: &str,
) -> orlop_model::Result<(PoolConfig, Inspection)> {
    let pool = config::thin_pool_at(place, config)
        .map_err(|error| Error::invalid("POOL", error.to_string()))?;
    let inspection = LvmPool::inspect(&pool, &config.node_id)?.ok_or_else(|| {
        let reason = "it has no pool header of Orlop among its tags, so it is not a pool";
        Error::failed(format!("inspect the thin pool {}/{}", pool.group, pool.thin_pool), reason)
    })?;
    Ok((PoolConfig::Lvm(pool), inspection.into()))
}

fn image_pools(config: &Config) -> impl Iterator<Item = &ImagePoolConfig> {
    config.pools.iter().filter_map(|pool| match pool {
        PoolConfig::Image(pool) => Some(pool),
        PoolConfig::Lvm(_) | PoolConfig::Rbd(_) => None,
    })
}

fn is_at(pool: &ImagePoolConfig, path: &Path) -> bool {
    let given = pool.path.clone();
    let resolved = within_timeout(move || given.canonicalize().map_err(|it| it.to_string()));
    resolved.is_ok_and(|resolved| resolved == path)
}

fn description(pool: &PoolConfig, inspection: &Inspection) -> Vec<String> {
    let free = space_text(space(pool));
    let mut lines = vec![format!("pool at {}: id {}{free}", pool.place(), inspection.id)];
    lines.push(match &inspection.last_owner {
        Some(before) => {
            format!("last served as pool {:?} by {}", before.name, shown(&before.topology))
        }
        None => "there is no record of which node served it last".to_owned(),
    });
    lines.push(contents(inspection));
    for volume in &inspection.volumes {
        let nodes: Vec<&str> = volume.published.keys().map(|node| node.as_str()).collect();
        let published = match nodes.as_slice() {
            [] => String::new(),
            nodes => format!(", published to {}", nodes.join(", ")),
        };
        let name = volume.name.as_str();
        lines.push(format!("  {} {name:?}: {} bytes{published}", volume.id, volume.capacity_bytes));
    }
    lines
}

fn shown(topology: &Topology) -> String {
    let segments: Vec<String> =
        topology.segments().map(|(key, value)| format!("{key}={value}")).collect();
    segments.join(",")
}

fn refuse_used(pool: &PoolConfig, inspection: &Inspection) -> orlop_model::Result<()> {
    if inspection.in_use {
        return Err(Error::precondition(format!(
            "cannot adopt the pool at {}: a daemon on this machine serves it",
            pool.place()
        )));
    }
    Ok(())
}

/// Ids of volumes hold the pool's id, so two pools of one id cannot be distinguished.
fn refuse_copy(
    config: &Config,
    pool: &PoolConfig,
    inspection: &Inspection,
    printer: &Printer,
) -> orlop_model::Result<()> {
    for other in config.pools.iter().filter(|other| !is_same(other, pool)) {
        let read = other.clone();
        let id = match within_timeout(move || id_of(&read).map_err(|error| error.to_string())) {
            Ok(id) => id,
            // No daemon serves it as it is, and one that does later refuses a copy.
            Err(error) => {
                printer.say(format!(
                    "whether pool {} is a copy of this one is not known: {error}",
                    other.name()
                ));
                continue;
            }
        };
        if id.as_ref() == Some(&inspection.id) {
            return Err(Error::precondition(format!(
                "cannot adopt the pool: pool {} at {} has the id {} as well: one is a copy of the other, and only one \
                 can be served here",
                other.name(),
                other.place(),
                inspection.id
            )));
        }
    }
    if let Some(device) = copies_in_use(pool, inspection)?.first() {
        return Err(Error::precondition(format!(
            "cannot adopt the pool: {} is attached to a volume of another pool with the id {}: one \
             is a copy of the other, and only one can be served here",
            device.display(),
            inspection.id
        )));
    }
    Ok(())
}

fn is_same(one: &PoolConfig, other: &PoolConfig) -> bool {
    match (one, other) {
        (PoolConfig::Image(one), PoolConfig::Image(other)) => is_at(one, &other.path),
        (PoolConfig::Lvm(_), PoolConfig::Lvm(_)) => one.place() == other.place(),
        (PoolConfig::Image(_) | PoolConfig::Lvm(_) | PoolConfig::Rbd(_), _) => false,
    }
}

/// Devices of a pool with the same id at another place.
fn copies_in_use(pool: &PoolConfig, inspection: &Inspection) -> orlop_model::Result<Vec<PathBuf>> {
    match pool {
        PoolConfig::Image(image) => ImagePool::copies_in_use(&inspection.id, &image.path),
        PoolConfig::Lvm(_) | PoolConfig::Rbd(_) => {
            let elsewhere = |it: &&LabelledDevice| it.behind == BehindDevice::Elsewhere;
            let devices = inspection.devices.iter().filter(elsewhere);
            Ok(devices.map(|it| it.device.path.clone()).collect())
        }
    }
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
