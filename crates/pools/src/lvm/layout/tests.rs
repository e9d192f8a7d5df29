use super::*;

fn pool() -> PoolId {
    "01234567".parse().unwrap()
}

#[test]
fn names_of_groups_leave_room_for_those_of_volumes() {
    let longest = "g".repeat(81);
    assert_eq!(longest.parse::<GroupName>().unwrap().as_str(), longest);
    assert!("g".repeat(82).parse::<GroupName>().is_err());
    // A hyphen counts twice.
    assert!(format!("a-{}", "g".repeat(78)).parse::<GroupName>().is_ok());
    assert!(format!("a-{}", "g".repeat(79)).parse::<GroupName>().is_err());
    for name in ["", "-a", ".", "..", "a/b", "a b", "a@b", "é"] {
        assert!(name.parse::<GroupName>().is_err(), "{name}");
    }
}

#[test]
fn devices_have_names_in_which_hyphens_are_doubled() {
    let group: GroupName = "vg-0".parse().unwrap();
    assert_eq!(group.lv(&"v-1"), "vg-0/v-1");
    assert_eq!(group.device_path("v-1-2").to_str(), Some("/dev/mapper/vg--0-v--1--2"));
}

#[test]
fn tags_of_others_are_not_ours_and_later_ones_are_refused() {
    assert_eq!(own_tag("orlop1:whole"), Some(Ok(OwnTag::Word("whole"))));
    assert_eq!(own_tag(&pool_tag(&pool())), Some(Ok(OwnTag::Pool("01234567"))));
    let piece = own_tag("orlop1:record:0/1:ab:x=a:b");
    assert_eq!(piece, Some(Ok(OwnTag::Piece { key: "record", piece: "0/1:ab:x=a:b" })));
    for foreign in
        ["orlop", "orlop:whole", "orlopx:whole", "Orlop1:whole", "backup", "xorlop1:draft"]
    {
        assert_eq!(own_tag(foreign), None, "{foreign}");
    }
    let later = own_tag("orlop2:whole").unwrap().unwrap_err();
    assert!(later.contains("format 2"), "{later}");
}
