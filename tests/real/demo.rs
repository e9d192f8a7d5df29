//! `orlop demo`: what it says is so, it notices if it is not, and nothing of it is left however it ends.

mod interrupted;
mod lies;
mod needs;
mod play;

use orlop_tests::*;
use play::{Play, SIZE};

/// One line for each step, in this order.
const STEPS: [&str; 15] = [
    "start",
    "create",
    "mount",
    "write",
    "snapshot",
    "overwrite",
    "restore",
    "clone",
    "changed",
    "group",
    "grow",
    "limit",
    "kill -9",
    "stop",
    "remove",
];

#[test]
fn demo_tells_every_step_and_leaves_nothing() {
    needs_root!();
    let play = Play::new();
    let ended = play.begin(&["--size", SIZE]).wait_for_end();
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    let steps: Vec<&str> = ended.stdout.lines().filter_map(step_of).collect();
    assert_eq!(steps, STEPS, "{}", ended.stdout);
    let said = |step: &str, text: &str| {
        let line = ended.stdout.lines().find(|line| step_of(line) == Some(step)).unwrap();
        assert!(line.contains(text), "{line}");
        line.to_owned()
    };
    said("create", "512.0 MiB");
    said("snapshot", "100 of the mounted volume");
    said("limit", "when its limit becomes");
    let written = word_after(&said("write", "16.0 MiB"), "checksum ");
    let overwritten = word_after(&said("overwrite", "4.0 MiB"), "the checksum is ");
    assert_ne!(written, overwritten);
    let restored = said("restore", "again");
    assert_eq!(word_after(&restored, "checksum "), written);
    assert_eq!(word_after(&restored, "still has "), overwritten);
    said("group", "3 volumes at one instant");
    said("kill -9", "the writer goes on");
    assert!(ended.stdout.contains("nothing lost"), "{}", ended.stdout);
    assert!(ended.stdout.contains("Every line above was checked."), "{}", ended.stdout);
    // Progress is for terminals.
    assert!(!ended.stdout.contains('\r'), "{:?}", ended.stdout);
    play.assert_nothing_is_left();
}

/// `  0.03 s  create    a volume`
fn step_of(line: &str) -> Option<&str> {
    let (took, rest) = line.split_once(" s  ")?;
    took.trim().parse::<f64>().ok()?;
    STEPS.into_iter().find(|step| rest.starts_with(step))
}

fn word_after(line: &str, text: &str) -> String {
    let (_, rest) = line.split_once(text).unwrap_or_else(|| panic!("{text:?} is not in {line}"));
    rest.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn kept_pool_can_be_served_again_and_outlives_the_next_demo() {
    needs_root!();
    let play = Play::new();
    let ended = play.begin(&["--size", SIZE, "--keep"]).wait_for_end();
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    assert_eq!(play.devices_and_mounts(), [""; 0]);
    let settings = word_after(&ended.stdout, "orlop doctor --config ");
    let examined = play.run(&["doctor", "--config", &settings]);
    assert_eq!(examined.status.code(), Some(0), "{examined:?}");
    assert!(examined.stdout.contains("9 volumes, 104 snapshots"), "{}", examined.stdout);
    let startable = play.run(&["serve", "--check", "--config", &settings]);
    assert_eq!(startable.status.code(), Some(0), "{startable:?}");

    let second = play.begin(&["--size", SIZE]).wait_for_end();
    assert_eq!(second.code, 0, "{}\n{}", second.stdout, second.stderr);
    assert!(std::path::Path::new(&settings).exists(), "a kept pool was removed");
    let removal = word_after(&ended.stdout, "rm -r ");
    orlop_sys::file::remove_tree(removal.as_ref()).unwrap();
    play.assert_nothing_is_left();
}

#[test]
fn two_demos_at_once_do_not_disturb_each_other() {
    needs_root!();
    let play = Play::new();
    let both = [play.begin(&["--size", SIZE]), play.begin(&["--size", SIZE])];
    for demo in both {
        let ended = demo.wait_for_end();
        assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    }
    play.assert_nothing_is_left();
}
