#![allow(clippy::unwrap_used)]

use rustix::fs::{CWD, mknodat};

use super::*;
use crate::testbed::scratch;

#[test]
fn only_regular_files_that_are_small_are_read() {
    let dir = scratch();
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("whole"), [7; 64]).unwrap();
    std::os::unix::fs::symlink(path("whole"), path("link")).unwrap();
    mknodat(CWD, path("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    for name in ["whole", "link"] {
        assert_eq!(read_small(&path(name), 64).unwrap(), [7; 64], "{name}");
    }
    for name in [path("pipe"), dir.path().to_owned(), "/dev/zero".into()] {
        let error = read_small(&name, 64).unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{error}");
    }
    assert_eq!(read_small_no_link(&path("whole"), 64).unwrap(), [7; 64]);
    for name in ["link", "pipe"] {
        assert!(read_small_no_link(&path(name), 64).is_err(), "{name}");
    }
    for error in [read_small(&path("whole"), 63), read_at_most(Path::new("/dev/zero"), 63)] {
        let error = error.unwrap_err();
        assert!(error.to_string().contains("longer than 63 bytes"), "{error}");
    }
    assert!(read_small(&path("none"), 64).unwrap_err().is_not_found());
}
