use tempfile::tempdir;

use super::*;

fn created(root: &Path) -> PoolHeader {
    PoolHeader::create(root, root, Kind::Plain).unwrap()
}

#[test]
fn header_is_read_back_with_its_id() {
    let root = tempdir().unwrap();
    assert!(PoolHeader::try_take(root.path()).unwrap().is_none());
    let id = created(root.path()).id().clone();
    let again = PoolHeader::try_take(root.path()).unwrap().unwrap();
    assert_eq!(*again.id(), id);
    assert_eq!(again.kind(), Kind::Plain);
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
}

#[test]
fn header_lock_is_exclusive() {
    let root = tempdir().unwrap();
    let held = created(root.path());
    let refused = PoolHeader::try_take(root.path()).unwrap_err().to_string();
    assert!(refused.contains("another process uses this pool"), "{refused}");
    let refused = PoolHeader::create(root.path(), root.path(), Kind::Plain).unwrap_err();
    assert!(matches!(refused, Error::Failed { .. }));
    drop(held);
    assert!(PoolHeader::try_take(root.path()).unwrap().is_some());
}

#[test]
fn concurrent_creators_make_one_pool() {
    let root = tempdir().unwrap();
    let path = root.path();
    let made = std::thread::scope(|scope| {
        let makers: Vec<_> =
            (0..8).map(|_| scope.spawn(|| PoolHeader::create(path, path, Kind::Plain))).collect();
        makers.into_iter().map(|maker| maker.join().unwrap()).collect::<Vec<_>>()
    });
    let winners: Vec<&PoolHeader> = made.iter().flatten().collect();
    assert_eq!(winners.len(), 1);
    winners[0].check().unwrap();
    assert_eq!(fs::read_dir(path).unwrap().count(), 1);
}

#[test]
fn unknown_format_is_refused_and_garbage_is_damage() {
    let root = tempdir().unwrap();
    let path = root.path().join(NAME);
    fs::write(&path, r#"{"format":2,"shape":"new"}"#).unwrap();
    let refused = PoolHeader::try_take(root.path()).unwrap_err().to_string();
    assert!(refused.contains("format 2"), "{refused}");
    for garbage in ["", "{}", r#"{"format":1,"id":"XX","kind":"plain"}"#] {
        fs::write(&path, garbage).unwrap();
        let refused = PoolHeader::try_take(root.path()).unwrap_err();
        assert!(matches!(refused, Error::Damaged { .. }), "{garbage}");
        assert_eq!(fs::read_to_string(&path).unwrap(), garbage);
    }
}

#[test]
fn replaced_or_removed_header_is_detected() {
    let root = tempdir().unwrap();
    let held = created(root.path());
    held.check().unwrap();
    let path = root.path().join(NAME);
    let copy = root.path().join("copy");
    fs::copy(&path, &copy).unwrap();
    fs::rename(&copy, &path).unwrap();
    assert!(held.check().unwrap_err().to_string().contains("replaced"));
    fs::remove_file(&path).unwrap();
    assert!(held.check().is_err());
}
