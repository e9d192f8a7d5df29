use orlop_model::NameDigest;

use super::*;

fn volume(number: usize) -> VolumeId {
    let pool = "0123abcd".parse().unwrap();
    VolumeId::new(pool, NameDigest::of_text(&number.to_string()))
}

#[test]
fn the_oldest_is_forgotten_first() {
    let failures = StageFailures::default();
    let error = Error::failed("mount it", "wrong medium type");
    for number in 0..=MAX_FAILURES {
        failures.note(&volume(number), &error);
    }
    assert_eq!(failures.of(&volume(0)), None);
    assert_eq!(failures.of(&volume(1)), Some(error.clone()));
    assert_eq!(failures.of(&volume(MAX_FAILURES)), Some(error));
}

#[test]
fn a_failure_is_over_when_it_is_cleared() {
    let failures = StageFailures::default();
    failures.note(&volume(1), &Error::precondition("it is in use"));
    failures.clear(&volume(1));
    assert_eq!(failures.of(&volume(1)), None);
}

/// Another call was at work: nothing is wrong with the volume, and nothing got better.
#[test]
fn a_busy_volume_keeps_its_failure() {
    let failures = StageFailures::default();
    let damaged = Error::damaged("volume a", "its data is missing");
    failures.note(&volume(1), &damaged);
    failures.note(&volume(1), &Error::busy("volume a", "another call"));
    failures.note(&volume(2), &Error::NoSuchVolume("b".to_owned()));
    assert_eq!(failures.of(&volume(1)), Some(damaged));
    assert_eq!(failures.of(&volume(2)), None);
}
