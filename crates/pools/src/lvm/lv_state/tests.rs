use super::*;

const RECORD_TAG: &str = "orlop1:record:0/1:ab:x=1";

fn steps(record: &[String]) -> [Step<'_>; 4] {
    [Step::Commit { record }, Step::Replace { record }, Step::Delete, Step::Remove]
}

fn in_state(state: LvState) -> LvTags {
    LvTags::of(state, &[])
}

#[test]
fn only_drafts_and_deleted_ones_are_removed() {
    for state in LvState::ALL {
        let removal = in_state(state).after(Step::Remove);
        assert_eq!(removal.is_some(), state != LvState::Whole, "{state}");
    }
}

#[test]
fn deleted_volume_never_becomes_whole_again() {
    for step in steps(&[]) {
        let next = in_state(LvState::Deleted).after(step);
        assert!(matches!(next, None | Some((Action::RemoveLv, None))), "{step:?}: {next:?}");
    }
}

#[test]
fn a_step_changes_only_the_tags_that_differ() {
    let record = [RECORD_TAG.to_owned()];
    let (action, whole) = LvTags::draft().after(Step::Commit { record: &record }).unwrap();
    let add = vec![RECORD_TAG.to_owned(), "orlop1:whole".to_owned()];
    assert_eq!(action, Action::ChangeTags { remove: vec!["orlop1:draft".to_owned()], add });
    let whole = whole.unwrap();
    assert_eq!(whole, LvTags::whole(&record));

    let changed = ["orlop1:record:0/1:cd:x=2".to_owned()];
    let (action, changed_tags) = whole.after(Step::Replace { record: &changed }).unwrap();
    let remove = record.to_vec();
    assert_eq!(action, Action::ChangeTags { remove, add: changed.to_vec() });

    let (action, deleted) = changed_tags.unwrap().after(Step::Delete).unwrap();
    let remove = vec![changed[0].clone(), "orlop1:whole".to_owned()];
    assert_eq!(action, Action::ChangeTags { remove, add: vec!["orlop1:deleted".to_owned()] });
    assert_eq!(deleted.unwrap().after(Step::Remove), Some((Action::RemoveLv, None)));
}

#[test]
fn tags_are_read_as_they_were_written() {
    let record = [RECORD_TAG.to_owned()];
    for tags in [LvTags::draft(), LvTags::whole(&record), in_state(LvState::Deleted)] {
        let with_others = tags.iter().chain(["backup", "orlop"]);
        assert_eq!(LvTags::parse(with_others), Ok(Some(tags.clone())));
    }
    assert_eq!(LvTags::parse(["backup", "orlop"]), Ok(None));
    assert_eq!(LvTags::parse([]), Ok(None));
}

#[test]
fn tags_that_contradict_each_other_are_damage() {
    let damaged: [&[&str]; 5] = [
        &["orlop1:whole", "orlop1:draft"],
        &[RECORD_TAG],
        &["orlop1:finished"],
        &["orlop1:whole", "orlop1:pool:01234567"],
        &["orlop1:whole", "orlop2:whole"],
    ];
    for tags in damaged {
        assert!(LvTags::parse(tags.iter().copied()).is_err(), "{tags:?}");
    }
}
