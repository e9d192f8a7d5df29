#![allow(clippy::unwrap_used)]

use std::io;

use super::*;

fn broken_disk() -> io::Error {
    io::Error::from_raw_os_error(5)
}

#[test]
fn what_could_not_be_done_comes_first_and_why_after_it() {
    let failed = Error::failed("read volume v-1", Reason::of(broken_disk()));
    let text = failed.to_string();
    assert!(text.starts_with("cannot read volume v-1: Input/output error"), "{text}");

    let absent = Error::unreachable("use pool p", "its disk does not answer");
    assert_eq!(absent.to_string(), "cannot use pool p: its disk does not answer");
}

#[test]
fn a_busy_object_is_the_subject() {
    let busy = Error::busy("volume v-1", "another call on it is running");
    assert_eq!(busy.to_string(), "volume v-1 is busy: another call on it is running; try again");
}

#[test]
fn the_error_of_the_layer_below_is_kept() {
    let explained = Reason::explained("cannot write: the disk is broken".to_owned(), broken_disk());
    for error in [
        Error::failed("write", Reason::of(broken_disk())),
        Error::unreachable("write", Reason::of(broken_disk())),
        Error::exhausted(explained.clone()),
        Error::precondition(explained),
    ] {
        let mut causes = std::iter::successors(error.source(), |&cause| cause.source());
        let kept = causes.find_map(|cause| cause.downcast_ref::<io::Error>()).unwrap();
        assert_eq!(kept.raw_os_error(), Some(5), "{error}");
    }
}

#[test]
fn reasons_are_equal_if_they_read_alike() {
    assert_eq!(Reason::of(broken_disk()), Reason::from(broken_disk().to_string()));
    assert_ne!(Reason::from("one"), Reason::from("another"));
}
