//! What real LVM answers.

use std::time::Duration;

use super::*;
use crate::lvm::testbed::{EXTENT, LIMIT, Testbed};

const NAME: &str = "v-01234567-0123456789abcdef0123456789abcdef";

fn change(lvm: &Lvm, command: &str, arguments: &[&str]) -> Result<()> {
    lvm.change(|| format!("run {command}"), command, arguments)
}

fn tags(count: usize, length: usize) -> Vec<String> {
    (0..count).map(|number| format!("{number:x>length$}")).collect()
}

#[test]
fn report_shows_all_volumes_of_the_group() {
    let Some(bed) = Testbed::new(2) else { return };
    let lvm = bed.lvm();
    let empty = lvm.report().unwrap();
    assert_eq!((empty.group.name.as_str(), empty.volumes.len()), (bed.group.as_str(), 0));
    assert_eq!((empty.group.extent, empty.group.missing_disks), (EXTENT, 0));
    assert_eq!(empty.group.size, empty.group.free);

    bed.create_lv(NAME, 2, &["a=b&c/0".to_owned(), "orlop1:draft".to_owned()]);
    bed.create_lv("other", 1, &[]);
    let report = lvm.report().unwrap();
    assert_eq!(report.group.free, empty.group.free - 3 * EXTENT);
    assert!(report.group.revision > empty.group.revision);
    assert!(report.group.metadata_area_free < empty.group.metadata_area_free);
    let lv = report.lv(NAME).unwrap();
    assert_eq!((lv.size, lv.kind()), (2 * EXTENT, report::LvKind::Thick));
    assert_eq!(lv.tags, ["a=b&c/0", "orlop1:draft"]);
    assert!(!lv.is_active(), "{lv:?}");
    assert!(report.lv("other").unwrap().tags.is_empty());
}

#[test]
fn tags_change_in_one_commit() {
    let Some(bed) = Testbed::new(1) else { return };
    bed.create_lv(NAME, 1, &["first".to_owned(), "second".to_owned()]);
    let lvm = bed.lvm();
    let before = lvm.report().unwrap().group.revision;
    let lv = lvm.group().lv(&NAME);
    let add = tags(3, 1024);
    let mut arguments = vec!["--deltag", "first", "--deltag", "second"];
    arguments.extend(add.iter().flat_map(|tag| ["--addtag", tag]));
    arguments.push(&lv);
    change(&lvm, "lvchange", &arguments).unwrap();
    let report = lvm.report().unwrap();
    assert_eq!(report.group.revision, before + 1);
    assert_eq!(report.lv(NAME).unwrap().tags, add);
}

#[test]
fn what_is_used_up_is_exhausted() {
    let Some(bed) = Testbed::new(1) else { return };
    let lvm = bed.lvm();
    let create = ["-an", "-Wn", "-Zn", "--size", "1t", "--name", NAME, &bed.group];
    let full = change(&lvm, "lvcreate", &create).unwrap_err();
    assert!(
        matches!(&full, Error::Exhausted(reason) if reason.as_str().contains("vgextend")),
        "{full}"
    );

    bed.create_lv(NAME, 1, &[]);
    let lv = lvm.group().lv(&NAME);
    let grow = change(&lvm, "lvextend", &["--size", "1t", &lv]).unwrap_err();
    assert!(matches!(grow, Error::Exhausted(_)), "{grow}");

    // As much as the metadata area of a default physical volume takes, and more.
    let tags = tags(600, 1000);
    let mut add: Vec<&str> = tags.iter().flat_map(|tag| ["--addtag", tag]).collect();
    add.push(&lv);
    let full = change(&lvm, "lvchange", &add).unwrap_err();
    let says_how =
        matches!(&full, Error::Exhausted(reason) if reason.as_str().contains("--metadatasize"));
    assert!(says_how, "{full}");
    assert!(lvm.report().unwrap().lv(NAME).unwrap().tags.is_empty(), "nothing of it was written");
}

#[test]
fn what_is_not_there_is_named() {
    let Some(bed) = Testbed::new(1) else { return };
    let elsewhere = Lvm::new("no-such-group".parse().unwrap(), &bed.settings(), LIMIT);
    let missing = elsewhere.report().unwrap_err();
    assert!(matches!(missing, Error::Unreachable { .. }), "{missing}");
    assert!(missing.to_string().contains("no-such-group"), "{missing}");

    let lvm = bed.lvm();
    let missing = change(&lvm, "lvremove", &[&lvm.group().lv(&NAME)]).unwrap_err();
    assert!(matches!(missing, Error::Failed { .. }), "{missing}");
    let no_pool = ["--virtualsize", "1g", "--thinpool", "tp", "--name", NAME, &bed.group];
    let missing = change(&lvm, "lvcreate", &no_pool).unwrap_err().to_string();
    assert!(missing.contains("removed or renamed by hand"), "{missing}");
}

#[test]
fn name_that_is_taken_is_refused() {
    let Some(bed) = Testbed::new(1) else { return };
    bed.create_lv(NAME, 1, &[]);
    let create = ["-an", "-Wn", "-Zn", "--extents", "1", "--name", NAME, &bed.group];
    let taken = change(&bed.lvm(), "lvcreate", &create).unwrap_err();
    assert!(matches!(taken, Error::Precondition(_)), "{taken}");
}

#[test]
fn missing_disk_is_reported_and_refuses_changes() {
    let Some(mut bed) = Testbed::new(2) else { return };
    let image = bed.pull_disk();
    let (lvm, group) = (bed.lvm(), bed.group.clone());
    assert_eq!(lvm.report().unwrap().group.missing_disks, 1);
    let create = ["-an", "-Wn", "-Zn", "--extents", "1", "--name", NAME, &group];
    let missing = change(&lvm, "lvcreate", &create).unwrap_err();
    assert!(matches!(missing, Error::Unreachable { .. }), "{missing}");
    assert!(missing.to_string().contains("attach the missing disk"), "{missing}");

    bed.plug_in(&image);
    let lvm = bed.lvm();
    assert_eq!(lvm.report().unwrap().group.missing_disks, 0);
    change(&lvm, "lvcreate", &create).unwrap();
}

#[test]
fn group_of_another_machine_is_absent() {
    let Some(bed) = Testbed::new(1) else { return };
    let lvm = bed.lvm();
    change(&lvm, "vgexport", &[&bed.group]).unwrap();
    let exported = lvm.report().unwrap_err();
    assert!(matches!(exported, Error::Unreachable { .. }), "{exported}");
    assert!(exported.to_string().contains("vgimport"), "{exported}");
    change(&lvm, "vgimport", &[&bed.group]).unwrap();

    change(&lvm, "vgchange", &["--systemid", "elsewhere", &bed.group]).unwrap();
    let foreign = lvm.report().unwrap_err();
    assert!(matches!(foreign, Error::Unreachable { .. }), "{foreign}");
    assert!(foreign.to_string().contains("another machine"), "{foreign}");
    let as_the_other = "global{system_id_source=\"lvmlocal\"} local{system_id=\"elsewhere\"}";
    let settings = format!("{} {as_the_other}", bed.settings());
    let there = Lvm::new(bed.group.parse().unwrap(), &settings, LIMIT);
    there.report().unwrap();
    change(&there, "vgchange", &["--systemid", "", &bed.group]).unwrap();
}

/// Another command of LVM changes the volume group for as long as the file is locked.
#[test]
fn lvm_that_waits_is_an_error_after_a_time() {
    let Some(bed) = Testbed::new(1) else { return };
    let lock = bed.lock();

    let impatient =
        Lvm::new(bed.group.parse().unwrap(), &bed.settings(), Duration::from_millis(200));
    let unanswered = impatient.report().unwrap_err();
    assert!(matches!(unanswered, Error::Unreachable { .. }), "{unanswered}");
    let settings = format!("{} global{{wait_for_locks=0}}", bed.settings());
    let not_waiting = Lvm::new(bed.group.parse().unwrap(), &settings, LIMIT);
    let held = not_waiting.report().unwrap_err();
    assert!(matches!(held, Error::Busy { .. }), "{held}");

    drop(lock);
    bed.lvm().report().unwrap();
}

#[test]
fn one_disk_that_is_there_twice_is_refused() {
    let Some(mut bed) = Testbed::new(1) else { return };
    let copy = bed.copy_disk();
    bed.plug_in(&copy);
    let create = ["-an", "-Wn", "-Zn", "--extents", "1", "--name", NAME, &bed.group];
    let twice = change(&bed.lvm(), "lvcreate", &create).unwrap_err();
    assert!(matches!(twice, Error::Unreachable { .. }), "{twice}");
    assert!(twice.to_string().contains("vgimportclone"), "{twice}");
    bed.pull_disk();
}

/// A program that asks a question keeps the lock until it is answered.
#[test]
fn command_that_writers_wait_for_gives_up_a_lock() {
    let Some(bed) = Testbed::new(1) else { return };
    bed.create_lv(NAME, 1, &[]);
    let lvm = bed.lvm();
    let lv = lvm.group().lv(&NAME);
    let add = |tag| {
        lvm.change_while_writers_wait(
            || "add a tag".to_owned(),
            "lvchange",
            &["--addtag", tag, &lv],
        )
    };
    let lock = bed.lock();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| change(&lvm, "lvchange", &["--addtag", "waits", &lv]));
        let refused = add("first").unwrap_err();
        assert!(matches!(refused, Error::Busy { .. }), "{refused}");
        let refused = add("second").unwrap_err();
        assert!(matches!(refused, Error::Busy { .. }), "{refused}");
        assert!(!waiting.is_finished(), "others wait as long as it takes");
        drop(lock);
        waiting.join().unwrap().unwrap();
    });
    add("third").unwrap();
    assert_eq!(lvm.report().unwrap().lv(NAME).unwrap().tags, ["third", "waits"]);
}

#[test]
fn two_groups_of_one_name_make_the_pool_absent() {
    let Some(mut bed) = Testbed::new(1) else { return };
    let (first, second) = (bed.group.clone(), bed.plug_in_new());
    let other = format!("{first}-other");
    bed.run("vgcreate", &[&other, &second]);
    let uuid = Lvm::new(other.parse().unwrap(), &bed.settings(), LIMIT).report().unwrap();
    // Where each is made, LVM refuses a name that is taken; another machine does not know it.
    let alone = bed.lvm();
    let settings = format!("{} devices/filter=[\"a|^{second}$|\",\"r|.*|\"]", bed.settings());
    let elsewhere = Lvm::new(other.parse().unwrap(), &settings, LIMIT);
    change(&elsewhere, "vgrename", &[&other, &first]).unwrap();
    let ambiguous = alone.report().unwrap_err();
    let back = bed.lvm().change(
        || "rename it back".to_owned(),
        "vgrename",
        &[uuid.group.uuid.as_str(), &other],
    );
    back.unwrap();
    assert!(matches!(ambiguous, Error::Unreachable { .. }), "{ambiguous}");
    assert!(ambiguous.to_string().contains("vgrename UUID"), "{ambiguous}");
    alone.report().unwrap();
    bed.run("vgremove", &[&other]);
}
