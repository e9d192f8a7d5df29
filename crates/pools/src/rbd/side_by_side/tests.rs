#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Barrier;

use super::*;

#[test]
fn answers_come_in_the_order_of_the_items() {
    for count in [0, 1, 2, AT_ONCE, 100] {
        let items: Vec<usize> = (0..count).collect();
        let doubled: Vec<usize> = items.iter().map(|item| item * 2).collect();
        assert_eq!(side_by_side(&items, |item| item * 2), doubled);
    }
}

/// Each request waits for all others of its batch: one after another they would never end.
#[test]
fn requests_wait_at_the_same_time() {
    let all = Barrier::new(AT_ONCE);
    let leaders = side_by_side(&[(); 3 * AT_ONCE], |()| all.wait().is_leader());
    assert_eq!(leaders.iter().filter(|leads| **leads).count(), 3);
}

#[test]
fn panic_of_one_request_reaches_the_caller() {
    let asked = std::panic::catch_unwind(|| {
        side_by_side(&[1, 2, 3], |item| assert_ne!(*item, 3, "this one panics"));
    });
    assert!(asked.is_err());
}
