#![allow(clippy::unwrap_used)]

use std::path::Path;

use super::*;
use crate::testbed::pattern;

#[test]
fn line_fields_are_parsed() {
    let line = "36 35 98:5 /mnt1 /mnt\\0402 rw,noatime master:1 shared:7 \
                - ext3 /dev/root ro,errors=continue";
    let entries = parse_mountinfo(line);
    let expected = MountEntry {
        id: 36,
        parent: 35,
        major: 98,
        minor: 5,
        root: PathBuf::from("/mnt1"),
        mount_point: PathBuf::from("/mnt 2"),
        options: vec!["rw".to_owned(), "noatime".to_owned()],
        fs_type: "ext3".to_owned(),
        source: "/dev/root".to_owned(),
        super_options: vec!["ro".to_owned(), "errors=continue".to_owned()],
    };
    assert_eq!(entries, [expected]);
    assert!(!entries[0].read_only() && entries[0].superblock_read_only());
}

#[test]
fn escapes_are_octal_and_anything_else_is_itself() {
    let point = |escaped: &str| {
        let line = format!("1 0 0:1 / {escaped} ro - tmpfs none rw");
        parse_mountinfo(&line)[0].mount_point.clone()
    };
    assert_eq!(point("/a\\040b\\011c\\012d\\134e\\043"), Path::new("/a b\tc\nd\\e#"));
    assert_eq!(point("/a\\04"), Path::new("/a\\04"));
    assert_eq!(point("/a\\999\\777"), Path::new("/a\\999\\777"));
    assert_eq!(point("/a\\+40"), Path::new("/a\\+40"));
    assert_eq!(point("/end\\"), Path::new("/end\\"));
}

#[test]
fn non_utf8_bytes_are_kept() {
    let entries = parse(b"1 0 0:1 / /a\xFF\\040b rw - tmpfs none rw");
    assert_eq!(entries[0].mount_point.as_os_str().as_encoded_bytes(), b"/a\xFF b");
}

#[test]
fn empty_source_is_accepted() {
    let entries = parse_mountinfo("1 0 0:1 / /mnt rw - tmpfs  rw");
    assert_eq!((entries[0].source.as_str(), entries[0].super_options.len()), ("", 1));
}

#[test]
fn lines_that_do_not_parse_are_skipped() {
    let text = "\nnonsense\n1 0 7 / /x rw - a b c\n1 0 0:1 / /x rw shared:1\n\
                1 0 0:1 / /x rw - ext4\n2 1 0:2 / /y rw - ext4 src rw\nx 0 0:1 / /z rw - a b c";
    let entries = parse_mountinfo(text);
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].mount_point, Path::new("/y"));
}

#[test]
fn no_input_makes_it_panic() {
    let line = b"36 35 98:5 /a\\040 /b\\134 rw - ext3 /dev/root rw\n";
    for seed in 0..20_000 {
        let noise = pattern(seed, 4);
        let mut mutated = line.to_vec();
        let place = usize::from(noise[0]) % mutated.len();
        mutated[place] = noise[1];
        mutated.truncate(usize::from(noise[2]) % 64);
        parse(&mutated);
        parse(&noise);
    }
}
