#![allow(clippy::unwrap_used)]

use super::*;

fn id(name: &str) -> String {
    VolumeId::new("0a0b0c0d".parse().unwrap(), NameDigest::of_text(name)).to_string()
}

fn named(names: &[&str]) -> Vec<Candidate> {
    names.iter().map(|name| Candidate { id: id(name), name: Some((*name).to_owned()) }).collect()
}

#[test]
fn an_id_a_name_and_a_unique_beginning_are_the_same_volume() {
    let ids = vec![id("pvc-1"), id("pvc-2"), "foreign".to_owned()];
    let digest = NameDigest::of_text("pvc-1");
    let short = &digest.as_str()[..8];
    for given in [&*id("pvc-1"), "pvc-1", short, &format!("v-0a0b0c0d-{short}")] {
        assert_eq!(
            by_id(Kind::Volume, given, &ids, Match::Beginning).unwrap(),
            Some(id("pvc-1")),
            "{given}"
        );
    }
    assert_eq!(
        by_id(Kind::Volume, "for", &ids, Match::Beginning).unwrap().as_deref(),
        Some("foreign")
    );
    assert_eq!(by_id(Kind::Volume, "pvc-3", &ids, Match::Beginning).unwrap(), None);
}

#[test]
fn an_ambiguous_beginning_names_the_candidates() {
    let ids = vec![id("pvc-1"), id("pvc-2")];
    let error = by_id(Kind::Volume, "v-0a0b", &ids, Match::Beginning).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(ids.iter().all(|id| error.to_string().contains(id)), "{error}");
    let error =
        by_name(Kind::Volume, "pvc-", &named(&["pvc-1", "pvc-2"]), Match::Beginning).unwrap_err();
    assert!(error.to_string().contains("pvc-1 (") && error.exit_code() == 2, "{error}");
    assert_eq!(by_id(Kind::Volume, "", &ids, Match::Beginning).unwrap_err().exit_code(), 2);
}

#[test]
fn a_miss_suggests_what_is_near() {
    let all = named(&["postgres-data", "redis"]);
    assert_eq!(
        by_name(Kind::Volume, "postgres", &all, Match::Beginning).unwrap(),
        id("postgres-data")
    );
    let error = by_name(Kind::Volume, "postgers-data", &all, Match::Beginning).unwrap_err();
    assert!(error.to_string().contains("did you mean postgres-data"), "{error}");
    assert_eq!(error.exit_code(), 3);
    let error = by_name(Kind::Volume, "zzz", &all, Match::Beginning).unwrap_err();
    assert!(!error.to_string().contains("did you mean"), "{error}");
}

/// A delete that is repeated must not go on to the next volume.
#[test]
fn what_destroys_needs_the_whole_name() {
    let all = named(&["data-2"]);
    let ids = vec![id("data-2")];
    assert_eq!(by_id(Kind::Volume, "data-2", &ids, Match::Whole).unwrap(), Some(id("data-2")));
    assert_eq!(by_id(Kind::Volume, &ids[0][..20], &ids, Match::Whole).unwrap(), None);
    assert_eq!(by_id(Kind::Volume, "data", &ids, Match::Whole).unwrap(), None);
    let error = by_name(Kind::Volume, "data", &all, Match::Whole).unwrap_err();
    assert!(error.to_string().contains("did you mean data-2"), "{error}");
}

#[test]
fn a_short_name_is_not_taken_for_a_digest() {
    let ids = vec![id("a")];
    let digest = NameDigest::of_text("a");
    assert_eq!(by_id(Kind::Volume, &digest.as_str()[..1], &ids, Match::Beginning).unwrap(), None);
    assert_eq!(by_id(Kind::Volume, &digest.as_str()[..7], &ids, Match::Beginning).unwrap(), None);
}

/// One of the names that are not known may begin in the same way.
#[test]
fn a_beginning_is_not_enough_if_names_are_missing() {
    let mut all = named(&["data-1", "other"]);
    all.push(Candidate { id: id("data-2"), name: None });
    let error = by_name(Kind::Volume, "data-", &all, Match::Beginning).unwrap_err();
    assert!(error.to_string().contains("give the whole name") && error.exit_code() == 2, "{error}");
    assert_eq!(by_name(Kind::Volume, "data-1", &all, Match::Beginning).unwrap(), id("data-1"));
    assert_eq!(by_name(Kind::Volume, "other", &all, Match::Whole).unwrap(), id("other"));
}
