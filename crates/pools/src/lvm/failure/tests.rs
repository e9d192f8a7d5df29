use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use super::*;

fn of(stderr: &str) -> Error {
    let ended = Ended {
        status: ExitStatus::from_raw(5 << 8),
        stdout: Vec::new(),
        stderr: stderr.to_owned(),
    };
    refused(|| "create volume v-1".to_owned(), &ended)
}

fn cause(stderr: &str) -> Cause {
    Cause::of(&complaints(stderr))
}

/// As LVM 2.03.16 has said it.
#[test]
fn what_lvm_says_has_one_cause() {
    for (said, expected) in [
        (
            "  Volume group \"vg\" has insufficient free space (28 extents): 256 required.",
            Cause::GroupFull,
        ),
        ("  Insufficient free space: 254 extents needed, but only 28 available", Cause::GroupFull),
        (
            "  Cannot create new thin volume, free space in thin pool vg/tp reached threshold.",
            Cause::ThinPoolFull,
        ),
        (
            "  VG vg 10 metadata on /dev/sda (585356 bytes) exceeds maximum metadata size (521472 bytes)",
            Cause::MetadataAreaFull,
        ),
        ("  Volume group \"vg\" not found\n  Cannot process volume group vg", Cause::GroupMissing),
        ("  Failed to find logical volume \"vg/x\"", Cause::LvMissing),
        ("  Pool tp not found in Volume group vg.", Cause::LvMissing),
        (
            "  Cannot change VG vg while PVs are missing.\n  See vgreduce --removemissing.",
            Cause::PvMissing,
        ),
        ("  Logical volume vg/v-1 in use.", Cause::InUse),
        ("  Logical volume vg/v-1 contains a filesystem in use.", Cause::InUse),
        ("  Logical Volume \"v-1\" already exists in volume group \"vg\"", Cause::NameTaken),
        (
            "  /run/lock/lvm/V_vg:aux: flock failed: Resource temporarily unavailable\n  Can't get lock for vg",
            Cause::LockHeld,
        ),
        ("  Volume group vg is exported", Cause::Exported),
        ("  Cannot access VG vg with system ID other with local system ID here.", Cause::OtherHost),
        ("  Cannot update volume group vg with duplicate PV devices.", Cause::DuplicatePvs),
        (
            "  Check of pool vg/tp failed (status:1). Manual repair required!",
            Cause::ThinPoolDamaged,
        ),
        (
            "  Thin pool vg-tp-tpool (253:2) transaction_id is 3, while expected 4.",
            Cause::ThinPoolDamaged,
        ),
        (
            "/dev/mapper/control: open failed: No such device\nFailure to communicate with kernel device-mapper driver.",
            Cause::NoDeviceMapper,
        ),
        ("  /dev/mapper/control: open failed: Permission denied", Cause::NotPermitted),
        ("  New size (2 extents) matches existing size (2 extents).", Cause::Unknown),
    ] {
        assert_eq!(cause(said), expected, "{said}");
    }
}

#[test]
fn warnings_and_consequences_do_not_decide() {
    let said = "  WARNING: VG vg is missing PV hC1uL2 (last written to /dev/sdb).\n  \
                WARNING: Volume group \"old\" not found\n  \
                Volume group \"vg\" has insufficient free space (28 extents): 256 required.\n";
    assert_eq!(cause(said), Cause::GroupFull);
    let said = "  VG vg 10 metadata on /dev/sda (5 bytes) exceeds maximum metadata size (2 bytes)\n  \
                WARNING: Failed to write an MDA of VG vg.\n  Failed to write VG vg.\n";
    assert_eq!(cause(said), Cause::MetadataAreaFull);
    let Error::Exhausted(reason) = of(said) else { panic!("no space is exhaustion") };
    assert_eq!(
        reason.as_str(),
        "cannot create volume v-1: lvm says: VG vg 10 metadata on /dev/sda (5 bytes) exceeds maximum metadata size \
         (2 bytes); Failed to write VG vg.; the volume group cannot describe more volumes: delete some, or replace \
         its physical volumes by such with a larger metadata area (`pvcreate --metadatasize`)"
    );
}

#[test]
fn each_cause_is_an_error_of_its_kind() {
    assert!(matches!(of("Insufficient free space: 2 extents needed"), Error::Exhausted(_)));
    assert!(matches!(of("Logical volume vg/v in use."), Error::Precondition(_)));
    assert!(matches!(of("Can't get lock for vg"), Error::Busy { .. }));
    assert!(matches!(of("Volume group \"vg\" not found"), Error::Unreachable { .. }));
    assert!(matches!(of("Manual repair required!"), Error::Damaged { .. }));
    assert!(matches!(of("Permission denied"), Error::Failed { .. }));
    let silent = of("").to_string();
    assert!(silent.contains("exit status: 5"), "{silent}");
}

#[test]
fn tags_are_not_repeated_in_messages() {
    let said = of(
        "  Invalid argument for --addtag: orlop1:record:0/1:ab:flags/0=secret@\n  Error during parsing.",
    );
    assert!(!said.to_string().contains("secret"), "{said}");
    assert!(said.to_string().contains("Error during parsing"), "{said}");
}

#[test]
fn a_query_without_an_answer_is_an_absent_pool() {
    let error = orlop_sys::Error::Unanswered { tool: "lvm".to_owned(), reason: "why".to_owned() };
    let error = cannot(|| "read vg".to_owned())(error);
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
}
