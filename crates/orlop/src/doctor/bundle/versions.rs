//! Versions of Orlop, the kernel, and the tools.

use std::time::Duration;

use orlop_sys::tool;

/// For one tool to print its version.
const TIMEOUT: Duration = Duration::from_secs(5);

const TOOLS: [(&str, &str); 7] = [
    ("mkfs.xfs", "-V"),
    ("xfs_growfs", "-V"),
    ("mkfs.ext4", "-V"),
    ("e2fsck", "-V"),
    ("mkfs.btrfs", "--version"),
    ("qemu-storage-daemon", "--version"),
    ("ceph", "--version"),
];

pub(super) fn all() -> String {
    let kernel = rustix::system::uname();
    let shown = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    let mut text = format!(
        "orlop: {}\nkernel: {} {} {}\n",
        env!("CARGO_PKG_VERSION"),
        shown(kernel.release()),
        shown(kernel.version()),
        shown(kernel.machine())
    );
    let system = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let system = system.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    text.push_str(&format!("system: {}\n", system.unwrap_or("unknown").trim_matches('"')));
    for (name, argument) in TOOLS {
        text.push_str(&format!("{name}: {}\n", version_of(name, argument)));
    }
    let ceph = orlop_sys::ceph::library_versions();
    text.push_str(&format!("ceph libraries: {}\n", ceph.unwrap_or_else(|error| error.to_string())));
    text
}

/// The first line that the tool prints. Some tools print it to stderr, and some exit with an error after it.
fn version_of(name: &str, argument: &str) -> String {
    if tool::find(name).is_none() {
        return "not installed".to_owned();
    }
    match tool::run_within(TIMEOUT, name, [argument]) {
        Ok(output) => {
            let all = [output.stdout, output.stderr].concat();
            String::from_utf8_lossy(&all).lines().next().unwrap_or("says nothing").to_owned()
        }
        Err(error) => format!("installed, but says no version: {error}"),
    }
}
