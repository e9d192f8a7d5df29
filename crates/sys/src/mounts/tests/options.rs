use super::super::{Attributes, FsOption, MountOptions};

fn parse(options: &[&str], read_only: bool) -> MountOptions {
    let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
    MountOptions::parse(&options, read_only)
}

fn flag(name: &str) -> FsOption {
    FsOption::Flag(name.to_owned())
}

#[test]
fn mount_attributes_and_filesystem_options_are_split() {
    let parsed = parse(&["noatime", "nosuid", "discard", "data=ordered", "sync"], false);
    let expected = Attributes::MOUNT_ATTR_NOATIME | Attributes::MOUNT_ATTR_NOSUID;
    assert_eq!(parsed.attributes, expected);
    let data = FsOption::Value("data".to_owned(), "ordered".to_owned());
    assert_eq!(parsed.filesystem, [flag("discard"), data, flag("sync")]);
}

#[test]
fn last_of_opposite_options_wins() {
    assert_eq!(parse(&["nodev", "dev", "noexec"], false).attributes, Attributes::MOUNT_ATTR_NOEXEC);
    let atime = parse(&["noatime", "strictatime"], false).attributes;
    assert_eq!(atime, Attributes::MOUNT_ATTR_STRICTATIME);
    assert_eq!(parse(&["noatime", "relatime"], false).attributes, Attributes::empty());
}

#[test]
fn read_only_applies_to_both_and_is_final() {
    for parsed in [parse(&["ro"], false), parse(&["rw"], true)] {
        assert_eq!(parsed.attributes, Attributes::MOUNT_ATTR_RDONLY);
        assert_eq!(parsed.filesystem, [flag("ro")]);
    }
    let parsed = parse(&["ro", "rw"], false);
    assert!(parsed.attributes.is_empty() && parsed.filesystem.is_empty());
}

#[test]
fn options_of_the_mount_program_are_dropped() {
    let parsed =
        parse(&["defaults", "_netdev", "x-systemd.automount", "", "nofail", "noexec"], false);
    assert_eq!(parsed.attributes, Attributes::MOUNT_ATTR_NOEXEC);
    assert!(parsed.filesystem.is_empty());
}

#[test]
fn option_with_a_comma_stays_one_option() {
    let label = "context=\"u:r:t:s0:c1,c2\"";
    let parsed = parse(&["commit=5,nobarrier", label], false);
    let value = |key: &str, value: &str| FsOption::Value(key.to_owned(), value.to_owned());
    let expected = [value("commit", "5,nobarrier"), value("context", "u:r:t:s0:c1,c2")];
    assert_eq!(parsed.filesystem, expected);
}
