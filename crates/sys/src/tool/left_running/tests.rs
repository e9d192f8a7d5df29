use super::*;

#[test]
fn program_that_outlives_its_parent_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let (file, begun) = (directory.path().join("lock"), directory.path().join("begun"));
    assert!(all_ended_within(Duration::ZERO, &file).unwrap());
    let script = format!("touch {}; read -r never; sleep 1000", begun.display());
    let (shared, running) = (file.clone(), std::sync::Arc::new(()));
    let still_running = std::sync::Arc::downgrade(&running);
    std::thread::spawn(move || {
        let _running = running;
        run_to_end_locking(&shared, "sh", ["-c", &script]).unwrap();
    });
    while !begun.exists() {
        std::thread::sleep(POLL_INTERVAL);
    }
    assert!(!all_ended_within(Duration::from_millis(200), &file).unwrap());
    // Two at once do not wait for each other.
    assert!(run_to_end_locking(&file, "true", [""; 0]).unwrap().status.success());
    assert!(still_running.upgrade().is_some());
    end_programs_of(&begun);
    assert!(all_ended_within(Duration::from_secs(60), &file).unwrap());
}

/// The shell whose script names the file, and what it has started.
fn end_programs_of(begun: &Path) {
    let named = begun.display().to_string();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(id) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        if words.starts_with("/usr/bin/sh\0") && words.contains(&named) {
            let group = rustix::process::Pid::from_raw(id).unwrap();
            rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
        }
    }
}
