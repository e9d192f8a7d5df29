use super::*;

fn id() -> PoolId {
    PoolId::from_random([7; 4])
}

#[test]
fn a_pool_that_was_served_stays_known_without_its_stamp() {
    let scratch = tempfile::tempdir().unwrap();
    let marks = PoolMarks::new(scratch.path().to_owned());
    let path = Path::new("/mnt/disk");
    assert_eq!(marks.served().unwrap(), []);
    for _ in 0..2 {
        marks.ensure(&id(), Some("stamp"), "fast", path).unwrap();
        assert!(marks.is_stamped(&id(), "stamp").unwrap());
        assert!(!marks.is_stamped(&id(), "other").unwrap());
        marks.ensure_unstamped(&id()).unwrap();
        assert!(!marks.is_stamped(&id(), "stamp").unwrap());
        let marker = scratch.path().join(id().to_string());
        let served =
            ServedPool { id: id(), name: "fast".to_owned(), path: path.to_owned(), marker };
        assert_eq!(marks.served().unwrap(), [served]);
    }
}

#[test]
fn a_stamp_of_an_earlier_version_counts() {
    let scratch = tempfile::tempdir().unwrap();
    let marks = PoolMarks::new(scratch.path().to_owned());
    // One of digits alone is a number to a parser.
    for stamp in ["00112233aabbccdd", "1234567890123456"] {
        std::fs::write(scratch.path().join(id().to_string()), stamp).unwrap();
        assert!(marks.is_stamped(&id(), stamp).unwrap());
        assert_eq!(marks.served().unwrap(), []);
    }
    marks.ensure_unstamped(&id()).unwrap();
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
}
