//! A machine that lacks something: what is needed is named before anything is made.

use super::play::Play;
use orlop_tests::*;

#[track_caller]
fn refused(before: &[&str], words: &[&str], why: &str) {
    let play = Play::new();
    let ended = play.begin_by(before, words).wait_for_end();
    assert_eq!(ended.code, 2, "{}\n{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains(why), "{}", ended.stderr);
    assert_eq!(ended.stdout, "");
    play.assert_nothing_is_left();
}

fn in_own_mounts(script: &str) -> Vec<String> {
    let words = ["/usr/bin/unshare", "--mount", "/bin/sh", "-c"].map(str::to_owned);
    words.into_iter().chain([format!("{script}; exec \"$0\" \"$@\"")]).collect()
}

#[track_caller]
fn refused_after(script: &str, why: &str) {
    let words = in_own_mounts(script);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    refused(&words, &[], why);
}

#[test]
fn root_is_needed() {
    needs_root!();
    let user = ["/usr/bin/setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    refused(&user, &["--dir", "/tmp"], "needs root");
}

#[test]
fn mkfs_is_needed() {
    needs_root!();
    let hide = "for at in /usr/sbin /sbin /usr/bin /bin; do \
        [ ! -e $at/mkfs.xfs ] || mount --bind /dev/null $at/mkfs.xfs; done";
    refused_after(hide, "install xfsprogs");
}

#[test]
fn loop_devices_are_needed() {
    needs_root!();
    refused_after("mount -t tmpfs tmpfs /dev", "modprobe loop");
}

#[test]
fn space_is_needed() {
    needs_root!();
    refused_after("mount -t tmpfs -o size=64m tmpfs \"$TMPDIR\"", "take less data with --size");
}

#[test]
fn size_and_directory_that_make_no_sense_are_refused() {
    needs_root!();
    refused(&[], &["--size", "1KiB"], "from 16MiB to 1TiB");
    refused(&[], &["--size", "much"], "a whole number with a unit");
    refused(&[], &["--dir", "/nonexistent"], "name another with --dir");
}
