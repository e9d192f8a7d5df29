#![allow(clippy::unwrap_used)]

use super::*;
use crate::testbed::scratch;

#[test]
fn presence_is_visible_until_all_have_left() {
    let dir = scratch();
    let first = Presence::try_alone(dir.path()).unwrap().unwrap();
    assert!(Presence::try_alone(dir.path()).unwrap().is_none());
    let second = Presence::beside_others(dir.path()).unwrap();
    first.leave();
    assert!(Presence::try_alone(dir.path()).unwrap().is_none());
    drop(second);
    assert!(Presence::try_alone(dir.path()).unwrap().is_some());
}

#[test]
fn presence_needs_a_directory() {
    let dir = scratch();
    let missing = Presence::try_alone(&dir.path().join("missing")).unwrap_err();
    assert!(missing.is_not_found(), "{missing}");
}
