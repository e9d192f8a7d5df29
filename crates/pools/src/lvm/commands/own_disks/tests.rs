use std::os::unix::process::ExitStatusExt;

use orlop_model::Error;

use super::*;
use crate::lvm::testbed::Testbed;

fn paths(paths: &[&str]) -> Vec<String> {
    paths.iter().map(|path| (*path).to_owned()).collect()
}

#[test]
fn only_disks_that_are_all_there_are_chosen() {
    let disks = OwnDisks::default();
    assert_eq!(disks.choice(), None);
    disks.learn(&paths(&["/dev/a", "/dev/b"]));
    assert_eq!(disks.choice().unwrap(), "/dev/a,/dev/b");
    for unknown in [&["/dev/a", "[unknown]"][..], &["/dev/a,b"], &[]] {
        disks.learn(&paths(unknown));
        assert_eq!(disks.choice(), None, "{unknown:?}");
    }
    disks.learn(&paths(&["/dev/a"]));
    disks.forget();
    assert_eq!(disks.choice(), None);
}

#[test]
fn lvm_without_the_option_gets_no_choice() {
    let disks = OwnDisks::default();
    disks.learn(&paths(&["/dev/a"]));
    disks.note_end(&ExitStatus::from_raw(5 << 8));
    assert!(disks.choice().is_some(), "a command that failed knows the option");
    disks.note_end(&ExitStatus::from_raw(UNKNOWN_OPTION << 8));
    disks.learn(&paths(&["/dev/a"]));
    assert_eq!(disks.choice(), None);
}

#[test]
fn disk_that_an_operator_adds_is_found() {
    let Some(mut bed) = Testbed::new(1) else { return };
    let lvm = bed.lvm();
    let before = lvm.report().unwrap();
    assert_eq!(before.disks.len(), 1);
    let added = bed.plug_in_new();
    bed.run("vgextend", &[bed.group.clone(), added]);
    let lvm = bed.lvm();
    lvm.disks.learn(&before.disks);
    let create = ["-an", "-Wn", "-Zn", "--extents", "1", "--name", "lv", &bed.group];
    lvm.change(|| "make lv".to_owned(), "lvcreate", &create).unwrap();
    // And a report is not one of a group with a disk missing.
    let lvm = bed.lvm();
    lvm.disks.learn(&before.disks);
    let after = lvm.report().unwrap();
    assert_eq!((after.disks.len(), after.group.missing_disks), (2, 0));
    assert_eq!(lvm.disks.choice().unwrap(), after.disks.join(","));
}

#[test]
fn disks_that_are_not_chosen_are_not_read() {
    let (Some(bed), Some(other)) = (Testbed::new(1), Testbed::new(1)) else { return };
    let lvm = bed.lvm();
    let own = lvm.report().unwrap().disks.clone();
    assert_eq!(lvm.disks.choice().unwrap(), own.join(","));
    let elsewhere = other.lvm();
    let refused = elsewhere.parsed(&elsewhere.query(Some(&own.join(","))).unwrap()).unwrap_err();
    assert!(matches!(refused, Error::Unreachable { .. }), "{refused}");
    elsewhere.disks.learn(&own);
    let found = elsewhere.report().unwrap();
    assert_eq!(elsewhere.disks.choice().unwrap(), found.disks.join(","));
}
