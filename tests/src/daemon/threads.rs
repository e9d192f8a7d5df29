//! Where the threads of a daemon that hangs are waiting.

use std::fs;
use std::path::Path;

/// Each thread's name, what it waits for, and its stack in the kernel as far as it may be read.
pub(super) fn print(process: u32) {
    eprintln!("--- threads of the daemon");
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let mut children = String::new();
    for thread in threads {
        let read = |name: &str| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
        eprintln!("{} in {}\n{}", read("comm").trim(), read("wchan"), read("stack"));
        children += &read("children");
    }
    for child in children.split_whitespace() {
        let command = fs::read(Path::new("/proc").join(child).join("cmdline")).unwrap_or_default();
        eprintln!("child {child}: {}", String::from_utf8_lossy(&command).replace('\0', " "));
    }
    eprintln!("---");
}
