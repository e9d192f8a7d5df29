use std::path::Path;

use orlop_model::Topology;

use super::super::capacity::Floor;
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
