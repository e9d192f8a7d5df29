//! Devices of device-mapper that are ours, by the command `dmsetup`.

use orlop_model::{Error, Reason, Result};
use orlop_sys::tool::{self, Ended};

const DMSETUP: &str = "dmsetup";
/// Where no udevd makes device nodes, dmsetup does.
const VERIFY_NODES: &str = "--verifyudev";
const SECTOR: u64 = 512;

/// What a device shows: so many bytes of another one, from its start.
pub(super) struct Table<'a> {
    pub(super) of: &'a str,
    pub(super) bytes: u64,
}

impl Table<'_> {
    fn text(&self) -> String {
        format!("0 {} linear {} 0", self.bytes / SECTOR, self.of)
    }
}

pub(super) fn create(name: &str, table: &Table<'_>, read_only: bool) -> Result<()> {
    let text = table.text();
    let uuid = format!("ORLOP-{name}");
    let mut arguments = vec!["create", name, VERIFY_NODES, "--uuid", &uuid, "--table", &text];
    if read_only {
        arguments.push("--readonly");
    }
    change("make", name, &arguments)
}

/// In place: what has the device open sees the new table. The kernel waits for what is under way.
pub(super) fn replace(name: &str, table: &Table<'_>, read_only: bool) -> Result<()> {
    let text = table.text();
    let mut arguments = vec!["reload", name, "--table", &text];
    if read_only {
        arguments.push("--readonly");
    }
    change("change", name, &arguments)?;
    resume(name)
}

pub(super) fn remove(name: &str) -> Result<()> {
    change("remove", name, &["remove", VERIFY_NODES, name])
}

/// Nothing is written to what is below until it is resumed; what was under way is finished. Its filesystem is not frozen
/// with that, as it may be frozen already.
pub(super) fn suspend(name: &str) -> Result<()> {
    change("suspend", name, &["suspend", "--nolockfs", name])
}

/// Does nothing to one that is not suspended.
pub(super) fn resume(name: &str) -> Result<()> {
    change("resume", name, &["resume", name])
}

/// Their names begin with `prefix`.
pub(super) fn suspended(prefix: &str) -> Result<Vec<String>> {
    let listing = || "list the devices of device-mapper".to_owned();
    let fields =
        ["info", "--columns", "--noheadings", "--separator", " ", "--options", "name,suspended"];
    let ended = tool::run_to_end(DMSETUP, fields)
        .map_err(|error| Error::failed(listing(), Reason::of(error)))?;
    if !ended.status.success() {
        return Err(Error::failed(listing(), said(&ended)));
    }
    let text = String::from_utf8_lossy(&ended.stdout);
    let names = text.lines().filter_map(|line| line.trim().strip_suffix(" Suspended"));
    Ok(names.filter(|name| name.starts_with(prefix)).map(str::to_owned).collect())
}

fn change(verb: &str, name: &str, arguments: &[&str]) -> Result<()> {
    let doing = || format!("{verb} the device {name}");
    let ended = tool::run_to_end(DMSETUP, arguments)
        .map_err(|error| Error::failed(doing(), Reason::of(error)))?;
    match ended.status.success() {
        true => Ok(()),
        false if ended.stderr.contains("Device or resource busy") => {
            Err(Error::precondition(format!(
                "cannot {}: it is in use; unmount or close it first: `dmsetup ls --tree` and `lsof` show by what",
                doing()
            )))
        }
        false => Err(Error::failed(doing(), said(&ended))),
    }
}

fn said(ended: &Ended) -> String {
    let lines: Vec<&str> =
        ended.stderr.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match lines.as_slice() {
        [] => format!("dmsetup ended with {}", ended.status),
        lines => format!("dmsetup says: {}", lines.join("; ")),
    }
}
