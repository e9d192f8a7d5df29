use std::os::unix::fs::FileExt;

use orlop_model::{DeviceAccess, Pool};
use orlop_sys::{file, mounts, tool};

use super::super::testbed::*;
use super::super::{ImagePool, ImagePoolConfig};
use super::*;

/// As a message has them, between quotes.
fn run_quoted(text: &str) {
    let command = text.split('\'').find(|part| part.contains("dd if="));
    tool::run("sh", ["-c", command.unwrap()]).unwrap();
}

/// To the device's cache, not further.
fn write(device: &Path) {
    let file = fs::File::options().write(true).open(device).unwrap();
    file.write_all_at(&pattern(3, MIB), 0).unwrap();
}

fn codes(testbed: &Testbed) -> Vec<&'static str> {
    let found = ImagePool::findings_of_removed(&testbed.pool_path()).unwrap();
    found.into_iter().map(|it| it.code).collect()
}

#[track_caller]
fn refusal(config: &ImagePoolConfig) -> String {
    let checked = ImagePool::check_left_on_devices(config).unwrap_err().to_string();
    let opened = ImagePool::open(config.clone()).unwrap_err();
    assert!(matches!(opened, Error::Damaged { .. }), "{opened}");
    assert_eq!(opened.to_string(), checked);
    checked
}

/// All but the mount point, which cannot be removed.
#[test]
fn managed_pool_is_saved_after_its_removal() {
    let Some(testbed) = Testbed::plain() else { return };
    let config = ImagePoolConfig { managed_size: Some(512 << 20), ..testbed.config() };
    let pool = ImagePool::open(config.clone()).unwrap();
    let record = create(&pool, &volume_of(&pool, "a", 16 * MIB));
    let device = pool.devices().ensure_attached(&record.id, DeviceAccess::ReadWrite).unwrap();
    let path = testbed.pool_path();
    for name in ["orlop.pool", "pool.xfs"] {
        fs::remove_file(path.join(name)).unwrap();
    }
    pool.close();
    drop(pool);
    file::remove_tree(&path.join("staging")).unwrap();
    std::fs::remove_file(path.join("served-by.json")).unwrap_or_default();
    // On the device of the volume, and nowhere else yet.
    write(&device.path);
    let before = read(&device.path);

    let refused = refusal(&config);
    assert_eq!(codes(&testbed), ["image-lost"]);
    assert!(refused.contains("are on it alone"), "{refused}");
    run_quoted(&refused);
    assert!(codes(&testbed).is_empty());
    let pool = ImagePool::open(config).unwrap();
    let device = pool.devices().ensure_attached(&record.id, DeviceAccess::ReadWrite).unwrap();
    assert!(read(&device.path) == before, "the copy differs");
    pool.devices().ensure_detached(&record.id, DeviceAccess::ReadWrite).unwrap();
    pool.close();
    assert!(mounts::mount_at(&path.join("mnt")).unwrap().is_none());
}

#[test]
fn removed_directory_does_not_become_a_new_pool() {
    let Some(testbed) = Testbed::xfs() else { return };
    let pool = testbed.open();
    let record = create(&pool, &volume_of(&pool, "a", 16 * MIB));
    let id = &record.id;
    let writable = pool.devices().ensure_attached(id, DeviceAccess::ReadWrite).unwrap();
    pool.devices().ensure_attached(id, DeviceAccess::ReadOnly).unwrap();
    pool.close();
    drop(pool);
    file::remove_tree(&testbed.pool_path()).unwrap();
    write(&writable.path);
    let before = read(&writable.path);

    for is_there in [false, true] {
        if is_there {
            fs::create_dir(testbed.pool_path()).unwrap();
        }
        let refused = refusal(&testbed.config());
        assert!(refused.contains(&id.to_string()), "{refused}");
        assert_eq!(codes(&testbed), ["data-missing"]);
    }
    run_quoted(&refusal(&testbed.config()));
    let mut saved = testbed.pool_path().into_os_string();
    saved.push(format!(".{id}.saved"));
    assert!(read(Path::new(&saved)) == before, "the copy differs");
    assert!(codes(&testbed).is_empty());
    testbed.open().close();
}
