//! Mounts, loop devices and log lines that concern the pools.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use orlop_sys::loopdev::{self, BackedDevice};
use orlop_sys::mounts::{self, MountEntry};
use orlop_sys::tool;
use rustix::fs::OFlags;

use crate::config::{Config, PoolConfig};
use crate::reading::within_timeout;

/// How much of a log is taken, from its end.
const LOG_BYTES: u64 = 1 << 20;
const LOG_LINES: &str = "10000";
const KERNEL_LOG_BYTES: usize = 1 << 20;
/// A log that grows while it is read must end all the same.
const MAX_KERNEL_RECORDS: usize = 1 << 20;
const JOURNAL_TIMEOUT: Duration = Duration::from_secs(30);
/// For each of its reports.
const LVM_TIMEOUT: Duration = Duration::from_secs(2);

/// Options without a value, which cannot be confidential.
const SHOWN_OPTIONS: [&str; 11] = [
    "ro",
    "rw",
    "nosuid",
    "nodev",
    "noexec",
    "noatime",
    "relatime",
    "nodiratime",
    "emergency_ro",
    "shutdown",
    "sync",
];

/// Of the pools, as the kernel names them; as the settings do, where that cannot be read.
pub(super) fn directories(config: &Config) -> Vec<PathBuf> {
    let resolved = |path: PathBuf| {
        let given = path.clone();
        let resolve = move || given.canonicalize().map_err(|error| error.to_string());
        within_timeout(resolve).unwrap_or(path)
    };
    config.pools.iter().filter_map(PoolConfig::directory).map(resolved).collect()
}

fn devices_of(config: &Config, directories: &[PathBuf]) -> Result<Vec<BackedDevice>, String> {
    let mut devices = loopdev::all_backed().map_err(|error| error.to_string())?;
    let exports = config.run_dir.join(&config.driver_name);
    devices.retain(|device| {
        device.file.starts_with(&exports)
            || directories.iter().any(|it| device.file.starts_with(it))
    });
    Ok(devices)
}

/// One line for each device on a file of a pool.
pub(super) fn loop_devices(config: &Config, directories: &[PathBuf]) -> Result<String, String> {
    let mut text = String::new();
    for BackedDevice { device, file, read_only, .. } in devices_of(config, directories)? {
        let number = device.device_number().map(|(major, minor)| format!("{major}:{minor}"));
        let access = if read_only { "ro" } else { "rw" };
        text.push_str(&format!(
            "{} {} {access} {}\n",
            device.path().display(),
            number.unwrap_or_else(|error| error.to_string()),
            file.display()
        ));
    }
    Ok(text)
}

/// All that LVM knows of a volume group. Tags hold records of volumes, in which there are no secrets.
pub(super) fn volume_group(group: &str) -> Result<String, String> {
    let fields = "+seg_type,chunk_size,zero,lv_metadata_size,data_percent,metadata_percent,\
                  lv_health_status,lv_when_full,devices,lv_tags";
    let queries = tool::Queries::new(LVM_TIMEOUT);
    let run = |arguments: &[&str]| {
        let ended = queries.run("lvm", arguments).map_err(|error| error.to_string())?;
        Ok::<_, String>(String::from_utf8_lossy(&ended.stdout).into_owned() + &ended.stderr)
    };
    let groups = run(&["vgs", "--options", "+vg_mda_size,vg_mda_free,vg_systemid", group])?;
    let disks = run(&["pvs", "--options", "+pv_missing", "--select", &format!("vg_name={group}")])?;
    let volumes = run(&["lvs", "--all", "--options", fields, group])?;
    Ok([groups, disks, volumes].join("\n"))
}

/// The pools, what is below them and the run directories, and every mount of a device of a pool.
pub(super) fn mounts(
    config: &Config,
    directories: &[PathBuf],
    run_dirs: &[PathBuf],
) -> Result<String, String> {
    let devices = devices_of(config, directories)?;
    let numbers: Vec<_> =
        devices.iter().filter_map(|device| device.device.device_number().ok()).collect();
    let names: Vec<PathBuf> = devices.iter().map(|device| device.device.path()).collect();
    let mut places = directories.to_vec();
    places.extend(run_dirs.iter().cloned());
    let concerns = |mount: &&MountEntry| {
        let is_around = |place: &PathBuf| {
            mount.mount_point.starts_with(place) || place.starts_with(&mount.mount_point)
        };
        let has_node = names.iter().any(|name| name.file_name() == mount.root.file_name());
        numbers.contains(&(mount.major, mount.minor))
            || places.iter().any(is_around)
            || has_node && mount.root.file_name().is_some()
    };
    let all = mounts::all_mounts().map_err(|error| error.to_string())?;
    let shown: Vec<String> = all.iter().filter(concerns).map(line).collect();
    Ok(format!("# id parent device root mount-point type source options\n{}\n", shown.join("\n")))
}

/// Options with a value may come from a request, and be confidential.
fn line(mount: &MountEntry) -> String {
    let is_shown = |option: &&String| SHOWN_OPTIONS.contains(&option.as_str());
    let mut options: Vec<&str> = mount
        .options
        .iter()
        .chain(&mount.super_options)
        .filter(is_shown)
        .map(String::as_str)
        .collect();
    options.sort_unstable();
    options.dedup();
    format!(
        "{} {} {}:{} {} {} {} {} {}",
        mount.id,
        mount.parent,
        mount.major,
        mount.minor,
        mount.root.display(),
        mount.mount_point.display(),
        mount.fs_type,
        mount.source,
        options.join(",")
    )
}

/// The last lines of `orlop.service` in the journal.
pub(super) fn journal() -> Result<String, String> {
    const ADVICE: &str = "give the file with the daemon's log as --log, for example the output of \
                          'kubectl logs' or 'docker logs'";
    let (sender, printed) = mpsc::sync_channel(1);
    let ask = move || {
        let words = ["--no-pager", "--quiet", "--output=short-iso", "--lines", LOG_LINES];
        let whose = ["_SYSTEMD_UNIT=orlop.service", "+", "_COMM=orlop"];
        let asked = tool::run("journalctl", words.iter().chain(&whose));
        // The receiver is gone only if it took too long.
        let _ = sender.send(asked);
    };
    let started = thread::Builder::new().name("journal".to_owned()).spawn(ask);
    started.map_err(|error| error.to_string())?;
    match printed.recv_timeout(JOURNAL_TIMEOUT) {
        Ok(Ok(output)) => match String::from_utf8_lossy(&output.stdout).into_owned() {
            empty if empty.trim().is_empty() => {
                Err(format!("the journal has no lines of orlop.service; {ADVICE}"))
            }
            lines => Ok(lines),
        },
        Ok(Err(error)) => Err(format!("cannot read the journal: {error}; {ADVICE}")),
        Err(_) => Err(format!("the journal was not read within 30 seconds; {ADVICE}")),
    }
}

/// The end of the kernel's log, which has the errors of disks and filesystems. As the kernel has it: priority and
/// facility, number, microseconds since its start, flags; then the text.
pub(super) fn kernel_log() -> Result<String, String> {
    const PATH: &str = "/dev/kmsg";
    let reading =
        |error: std::io::Error| format!("cannot read {PATH}: {error}; add the output of dmesg");
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let mut file =
        std::fs::OpenOptions::new().read(true).custom_flags(flags).open(PATH).map_err(reading)?;
    let mut records: VecDeque<Vec<u8>> = VecDeque::new();
    let mut kept: usize = 0;
    // Each read gives one record; the longest of all has 8 KiB.
    let mut record = vec![0; 16 << 10];
    for _ in 0..MAX_KERNEL_RECORDS {
        match file.read(&mut record) {
            Ok(0) => break,
            Ok(length) => {
                let text = record.get(..length).unwrap_or_default().to_vec();
                kept += text.len();
                records.push_back(text);
            }
            // That was the last one.
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            // The kernel wrote over the next record: it goes on with the oldest that is left.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(reading(error)),
        }
        while kept > KERNEL_LOG_BYTES
            && let Some(first) = records.pop_front()
        {
            kept -= first.len();
        }
    }
    let text: Vec<u8> = records.into_iter().flatten().collect();
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Starts at a whole line.
pub(super) fn end_of_file(path: &Path) -> Result<Vec<u8>, String> {
    let reading = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    let mut file = std::fs::File::open(path).map_err(reading)?;
    let length = file.seek(SeekFrom::End(0)).map_err(reading)?;
    let begin = length.saturating_sub(LOG_BYTES);
    file.seek(SeekFrom::Start(begin)).map_err(reading)?;
    let mut end = Vec::new();
    file.take(LOG_BYTES).read_to_end(&mut end).map_err(reading)?;
    match end.iter().position(|byte| *byte == b'\n') {
        Some(first) if begin > 0 => Ok(end.split_off(first + 1)),
        Some(_) | None => Ok(end),
    }
}
