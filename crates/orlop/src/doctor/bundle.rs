//! `orlop doctor --bundle`: an archive for finding a fault without access to the machine. It has no secrets: keys are named
//! by the paths of their files, and mount flags, which may be confidential, are left out. The MANIFEST lists what could not
//! be read.

mod machine;
mod tar;
mod versions;

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::Value;

use crate::config::{Config, PoolConfig, Sockets, effective};
use crate::reading::within_timeout;
use tar::Archive;

/// The directory of all files in the archive.
const ROOT: &str = "orlop-support";
const LONGEST_FILE: usize = 1 << 20;
/// More than a node is meant to have.
const MAX_NODE_RECORDS: usize = 2000;

/// The results of the examination.
pub(super) struct Findings {
    pub(super) text: String,
    pub(super) json: String,
    pub(super) run_dirs: Vec<PathBuf>,
}

#[derive(Default)]
pub(super) struct Bundle {
    files: Vec<(String, Vec<u8>)>,
    /// What is missing in the archive, and why.
    missing: Vec<(String, String)>,
    /// Which directory a short name stands for.
    legend: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot write the support bundle {path}: {why}")]
pub(super) struct BundleError {
    path: String,
    why: String,
}

impl BundleError {
    fn new(path: &Path, why: impl ToString) -> Self {
        Self { path: path.display().to_string(), why: why.to_string() }
    }
}

/// Checks the path before the pools are examined, which may take long.
pub(super) fn check_target(path: &Path) -> Result<(), BundleError> {
    match path.symlink_metadata() {
        Ok(_) => Err(exists(path)),
        Err(error) if error.kind() == ErrorKind::NotFound => match parent(path).is_dir() {
            true => Ok(()),
            false => Err(BundleError::new(path, "its directory does not exist; make it first")),
        },
        Err(error) => Err(BundleError::new(path, error)),
    }
}

fn exists(path: &Path) -> BundleError {
    BundleError::new(path, "it exists already, and is not overwritten; choose another name")
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => Path::new("/"),
    }
}

impl Bundle {
    pub(super) fn collect(
        config: &Config,
        sockets: Option<&Sockets>,
        findings: Findings,
        log: Option<&Path>,
    ) -> Self {
        let mut bundle = Self::default();
        bundle.add("configuration.toml", effective(config, sockets));
        bundle.add("findings.txt", findings.text);
        bundle.add("findings.json", findings.json);
        bundle.add("versions.txt", versions::all());
        bundle.add_log(log);
        bundle.add_outcome("kernel-log.txt", within_timeout(machine::kernel_log));
        let directories = machine::directories(config);
        bundle.add_outcome("mounts.txt", machine::mounts(config, &directories, &findings.run_dirs));
        bundle.add_outcome("loop-devices.txt", machine::loop_devices(config, &directories));
        for pool in &config.pools {
            bundle.add_pool(pool);
        }
        for (number, run_dir) in findings.run_dirs.iter().enumerate() {
            bundle.add_run_dir(&format!("run-{}", number + 1), run_dir);
        }
        bundle
    }

    fn add(&mut self, name: &str, contents: impl Into<Vec<u8>>) {
        self.files.push((name.to_owned(), contents.into()));
    }

    fn add_outcome(&mut self, name: &str, contents: Result<String, String>) {
        match contents {
            Ok(text) => self.add(name, text),
            Err(why) => self.miss(name, why),
        }
    }

    fn miss(&mut self, name: &str, why: impl ToString) {
        self.missing.push((name.to_owned(), why.to_string()));
    }

    /// Adds a text file that Orlop wrote.
    fn add_file(&mut self, name: &str, path: &Path) {
        match read_file(path) {
            Ok(contents) => self.add(name, contents),
            Err(why) => self.miss(name, why),
        }
    }

    fn add_log(&mut self, log: Option<&Path>) {
        const NAME: &str = "log.txt";
        match log {
            Some(path) => {
                let path = path.to_owned();
                match within_timeout(move || machine::end_of_file(&path)) {
                    Ok(lines) => self.add(NAME, lines),
                    Err(why) => self.miss(NAME, why),
                }
            }
            None => self.add_outcome(NAME, machine::journal()),
        }
    }

    fn add_pool(&mut self, pool: &PoolConfig) {
        let at = |file: &str| format!("pools/{}/{file}", pool.name());
        match pool {
            PoolConfig::Image(image) => {
                for file in ["orlop.pool", "served-by.json"] {
                    let path = image.path.join(file);
                    match within_timeout(move || read_file(&path)) {
                        Ok(contents) => self.add(&at(file), contents),
                        Err(why) => self.miss(&at(file), why),
                    }
                }
            }
            PoolConfig::Lvm(lvm) => {
                let group = lvm.group.clone();
                let report = within_timeout(move || machine::volume_group(&group));
                self.add_outcome(&at("volume-group.txt"), report);
            }
            PoolConfig::Rbd(_) => self.miss(
                &at("orlop.pool"),
                "it is an object in the Ceph cluster; findings.json has the pool's id, if it could be reached",
            ),
        }
    }

    fn add_run_dir(&mut self, short: &str, run_dir: &Path) {
        self.legend.push(format!("{short} is {}", run_dir.display()));
        if !run_dir.is_dir() {
            return self.miss(short, "there is no such directory; nothing was served with it");
        }
        for part in ["pools", "volumes", "frozen", "limited", "lost-writes", "io-before"] {
            let directory = run_dir.join(part);
            let entries = match entries_of(&directory) {
                Ok(entries) => entries,
                Err(error) => {
                    self.miss(&format!("{short}/{part}"), error);
                    continue;
                }
            };
            let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
            paths.sort();
            if let Some(beyond) =
                paths.len().checked_sub(MAX_NODE_RECORDS).filter(|beyond| *beyond > 0)
            {
                self.miss(&format!("{short}/{part}"), format!("{beyond} of {} files", paths.len()));
                paths.truncate(MAX_NODE_RECORDS);
            }
            for path in paths {
                let file = path.file_name().unwrap_or_default().to_string_lossy();
                let name = format!("{short}/{part}/{file}");
                match part {
                    "volumes" => self.add_outcome(&name, node_record(&path)),
                    _ => self.add_file(&name, &path),
                }
            }
        }
    }

    /// Never overwrites a file, and writes the whole archive or nothing.
    pub(super) fn write(mut self, path: &Path) -> Result<String, BundleError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut archive = Archive::new(now);
        for (name, contents) in std::mem::take(&mut self.files) {
            if let Err(error) = archive.add(&format!("{ROOT}/{name}"), &contents) {
                self.miss(&name, error);
            }
        }
        let manifest = format!("{ROOT}/MANIFEST");
        archive
            .add(&manifest, self.manifest().as_bytes())
            .map_err(|it| BundleError::new(path, it))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let draft = parent(path).join(format!(".{name}.{}", std::process::id()));
        let written = write_private(&draft, &archive.finish())
            .and_then(|()| Ok(renameat_with(CWD, &draft, CWD, path, RenameFlags::NOREPLACE)?));
        if let Err(error) = written {
            let _ = std::fs::remove_file(&draft);
            return Err(match error.kind() == ErrorKind::AlreadyExists {
                true => exists(path),
                false => BundleError::new(path, error),
            });
        }
        Ok(self.summary(path))
    }

    fn manifest(&self) -> String {
        let mut text = format!(
            "A support bundle of orlop {}. It has no secrets; mount flags are left out, as they may be \
             confidential. Names of volumes, paths and addresses are in it.\n",
            env!("CARGO_PKG_VERSION")
        );
        self.legend.iter().for_each(|line| text.push_str(&format!("{line}\n")));
        match self.missing.is_empty() {
            true => text.push_str("\nNothing is missing.\n"),
            false => text.push_str("\nNot in it:\n"),
        }
        for (name, why) in &self.missing {
            text.push_str(&format!("- {name}: {why}\n"));
        }
        text
    }

    fn summary(&self, path: &Path) -> String {
        let names: Vec<&str> = self.missing.iter().map(|(name, _)| name.as_str()).collect();
        match names.as_slice() {
            [] => format!("support bundle: {}", path.display()),
            names => format!(
                "support bundle: {}; not in it: {} (its MANIFEST says why)",
                path.display(),
                names.join(", ")
            ),
        }
    }
}

fn write_private(path: &Path, contents: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(contents)?;
    file.sync_all()
}

/// The pool, and a run directory that it names, may come with a disk from elsewhere. A link there could put any file of
/// this machine into an archive that is sent away.
fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    orlop_sys::file::read_small_no_link(path, LONGEST_FILE).map_err(|error| error.to_string())
}

fn entries_of(directory: &Path) -> std::io::Result<std::fs::ReadDir> {
    match directory.symlink_metadata()?.is_dir() {
        true => directory.read_dir(),
        false => Err(ErrorKind::NotADirectory.into()),
    }
}

/// A node record without its mount flags.
fn node_record(path: &Path) -> Result<String, String> {
    let contents = read_file(path)?;
    let mut record: Value = serde_json::from_slice(&contents)
        .map_err(|_| "it is not JSON, and left out because it may hold mount flags".to_owned())?;
    hide_flags(&mut record);
    serde_json::to_string_pretty(&record).map_err(|error| error.to_string())
}

fn hide_flags(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match name.as_str() {
                    "flags" => *value = Value::from("left out"),
                    _ => hide_flags(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(hide_flags),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
