#![allow(clippy::unwrap_used)]

use super::*;

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
}

#[test]
fn known_parameters_are_read_foreign_ones_ignored() {
    let (parsed, limits) = VolumeParameters::parse(&map(&[
        ("pool", "fast"),
        ("provisioning", "thick"),
        ("mkfsOptions", "-i 16384 -O ^has_journal"),
        ("readIops", "100"),
        ("csi.storage.k8s.io/pvc/name", "data-0"),
    ]))
    .unwrap();
    assert_eq!(parsed.pool.as_deref(), Some("fast"));
    assert_eq!(parsed.provisioning, Provisioning::Thick);
    assert_eq!(parsed.mkfs_options, ["-i", "16384", "-O", "^has_journal"]);
    assert_eq!(limits.applied_to(IoLimits::default()).read_iops, Some(100));
}

#[test]
fn unknown_keys_and_bad_values_are_invalid() {
    for (key, value) in [
        ("nosuch", "1"),
        ("provisioning", "medium"),
        ("pool", "../x"),
        ("pool", ""),
        ("mkfsOptions", "-d file=/etc/passwd"),
        ("mkfsOptions", "-O --help"),
        ("mkfsOptions", "-i"),
        ("encryption", "luks1"),
        ("encryption", ""),
        ("encryptionDiscard", "true"),
        ("readIops", "-1"),
        ("readIops", "+1"),
        ("readIops", "1.5"),
        ("writeBytesPerSecond", "99999999999999999999"),
    ] {
        let error = VolumeParameters::parse(&map(&[(key, value)])).unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{key}={value}");
    }
}

#[test]
fn absent_keys_change_nothing_and_zero_lifts_a_limit() {
    let first = IoLimitsChange::parse(&map(&[("readIops", "10"), ("writeIops", "20")])).unwrap();
    let limits = first.applied_to(IoLimits::default());
    let second = IoLimitsChange::parse(&map(&[("readIops", "0")])).unwrap();
    let limits = second.applied_to(limits);
    assert_eq!((limits.read_iops, limits.write_iops), (None, Some(20)));
}

#[test]
fn later_change_wins() {
    let fixed = IoLimitsChange::parse(&map(&[("readIops", "10"), ("writeIops", "20")])).unwrap();
    let mutable = IoLimitsChange::parse(&map(&[("readIops", "99")])).unwrap();
    let limits = fixed.then(mutable).applied_to(IoLimits::default());
    assert_eq!((limits.read_iops, limits.write_iops), (Some(99), Some(20)));
}

#[test]
fn mkfs_options_belong_to_their_filesystem() {
    let (parsed, _) = VolumeParameters::parse(&map(&[("mkfsOptions", "-L x -N 1000")])).unwrap();
    assert!(parsed.check_fit(FsType::Ext4).is_ok());
    let refused = parsed.check_fit(FsType::Xfs).unwrap_err().to_string();
    assert!(refused.ends_with("-N is not for xfs, which takes -i, -m, -L, -n"), "{refused}");
    assert!(VolumeParameters::parse(&map(&[("mkfsOptions", "-m uuid=1")])).is_err());
}

#[test]
fn manual_lists_the_mkfs_options() {
    let manual = include_str!("../../../../docs/storage-classes.md");
    for fs in FsType::ALL {
        let listed = format!("{fs}: `{}`", mkfs_options_of(fs).join(" "));
        assert!(manual.contains(&listed), "{listed}");
    }
}

#[test]
fn unknown_key_error_lists_the_known_keys() {
    let refused = |key| VolumeParameters::parse(&map(&[(key, "xfs")])).unwrap_err().to_string();
    let all = "takes pool, provisioning, mkfsOptions, encryption, encryptionDiscard, raid, mirrors, stripes, \
               stripeSize, readIops, writeIops, readBytesPerSecond, writeBytesPerSecond";
    assert!(refused("colour").ends_with(all), "{}", refused("colour"));
    for key in ["fsType", "fstype", "FSType", "filesystem"] {
        let text = refused(key);
        assert!(text.contains(key) && text.contains(all), "{text}");
        assert!(text.contains("csi.storage.k8s.io/fstype"), "{text}");
    }
    let text = IoLimitsChange::parse(&map(&[("pool", "x")])).unwrap_err().to_string();
    assert!(!text.contains("provisioning") && text.contains("readIops"), "{text}");
}

#[test]
fn encrypted_volume_passes_discards_on_by_default() {
    let parsed = |entries: &[(&str, &str)]| {
        VolumeParameters::parse(&map(entries)).map(|(parameters, _)| parameters.encryption)
    };
    let luks2 = |discard| Some(Encryption { kind: EncryptionKind::Luks2, discard });
    assert_eq!(parsed(&[]).unwrap(), None);
    assert_eq!(parsed(&[("encryption", "luks2")]).unwrap(), luks2(true));
    for discard in [true, false] {
        let text = discard.to_string();
        let entries = [("encryptionDiscard", text.as_str()), ("encryption", "luks2")];
        assert_eq!(parsed(&entries).unwrap(), luks2(discard));
    }
    let wrong = [("encryptionDiscard", "yes"), ("encryption", "luks2")];
    assert!(parsed(&wrong).is_err());
}
