#![allow(clippy::unwrap_used)]

use super::super::parse_mountinfo;
use super::*;

#[test]
fn only_disks_that_programs_do_not_need_are_released() {
    let mounts = parse_mountinfo(
        "1 0 7:1 / / rw - ext4 /dev/loop1 rw\n\
         2 1 7:2 / /usr rw - squashfs /dev/loop2 ro\n\
         3 1 0:5 / /dev rw - devtmpfs devtmpfs rw\n\
         4 3 7:3 / /dev/disks rw - ext4 /dev/loop3 rw\n\
         5 1 8:1 / /data rw - ext4 /dev/sda1 rw\n\
         6 5 7:4 / /data/volume rw - xfs /dev/loop4 rw\n\
         7 6 0:40 / /data/volume/sub rw - btrfs /dev/loop5 rw\n\
         8 1 0:41 / /export rw - fuse /dev/fuse rw\n\
         9 1 0:42 / /far rw - nfs4 server:/ rw\n\
         10 9 7:6 / /far/volume rw - ext4 /dev/loop6 rw\n",
    );
    let released = |used: &[&str]| -> Vec<String> {
        let used: Vec<_> = used.iter().map(PathBuf::from).collect();
        choose(&mounts, &used).into_iter().map(|point| point.into_string().unwrap()).collect()
    };
    assert_eq!(released(&[]), ["/export", "/data/volume/sub", "/data/volume"]);
    assert_eq!(released(&["/dev/loop9"]), ["/export", "/data/volume/sub", "/data/volume"]);
    assert_eq!(released(&["/data/volume/image"]), ["/export", "/data/volume/sub"]);
    assert_eq!(released(&["/data/volume/sub/image"]), ["/export"]);
}
