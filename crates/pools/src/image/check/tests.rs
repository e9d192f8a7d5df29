use std::path::Path;

use orlop_model::Topology;

use super::super::capacity::Floor;
use super::super::open::ServedBefore;
use super::*;

fn config(path: &Path) -> ImagePoolConfig {
    ImagePoolConfig {
        path: path.to_owned(),
        name: "default".to_owned(),
        topology: Topology::default(),
        floor: Floor::Percent(5),
        overcommit_percent: 100,
        managed_size: None,
        create: true,
        served_before: Vec::new(),
        thaw_helper: None,
    }
}

#[test]
fn check_refuses_like_open_and_creates_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("pool");
    assert_eq!(ImagePool::check(&config(&path)), Ok(Start::Make));
    assert!(!path.exists());
    assert!(ImagePool::check(&ImagePoolConfig { create: false, ..config(&path) }).is_err());

    fs::write(&path, "").unwrap();
    let error = ImagePool::check(&config(&path)).unwrap_err();
    assert!(error.to_string().contains("is not a directory"), "{error}");
    fs::remove_file(&path).unwrap();

    fs::create_dir_all(path.join(format!("volumes/v-01234567-{}", "0".repeat(32)))).unwrap();
    assert!(matches!(ImagePool::check(&config(&path)), Err(Error::Damaged { .. })));
    fs::write(path.join("orlop.pool"), r#"{"format": 999}"#).unwrap();
    let error = ImagePool::check(&config(&path)).unwrap_err();
    assert!(error.to_string().contains("format 999"), "{error}");
}

/// A disk that is not mounted, at a restart within one boot.
#[test]
fn no_pool_is_made_in_the_place_of_one_that_was_served_before() {
    let scratch = tempfile::tempdir().unwrap();
    let [path, other] = ["pool", "other"].map(|name| scratch.path().join(name));
    fs::create_dir(&path).unwrap();
    let marker = scratch.path().join("marker");
    let before = ServedBefore {
        id: orlop_model::PoolId::from_random([7; 4]),
        paths: vec![path.clone(), other.clone()],
        marker: marker.clone(),
    };
    for create in [true, false] {
        let served_before = vec![before.clone()];
        let config = ImagePoolConfig { create, served_before, ..config(&path) };
        for refused in [ImagePool::check(&config).map(drop), ImagePool::open(config).map(drop)] {
            let Err(Error::Unreachable { reason, .. }) = refused else { panic!("{refused:?}") };
            for expected in [before.id.to_string(), marker.display().to_string()] {
                assert!(reason.as_str().contains(&expected), "{reason}");
            }
        }
    }
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0, "something was made");

    // It is at another path by now, so this one is free.
    fs::create_dir(&other).unwrap();
    let header = format!(r#"{{"format":1,"id":"{}","kind":"plain"}}"#, before.id);
    fs::write(other.join("orlop.pool"), header).unwrap();
    let config = ImagePoolConfig { served_before: vec![before], ..config(&path) };
    assert_eq!(ImagePool::check(&config), Ok(Start::Make));
}
