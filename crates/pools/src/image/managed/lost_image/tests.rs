use std::path::PathBuf;

use orlop_model::Pool;
use orlop_sys::tool;

use super::super::super::testbed::*;
use super::super::super::{ImagePool, ImagePoolConfig};
use super::*;

fn config(testbed: &Testbed) -> ImagePoolConfig {
    ImagePoolConfig { managed_size: Some(512 << 20), ..testbed.config() }
}

/// The pool with its image removed under it, and the device that has everything.
fn lost(testbed: &Testbed) -> (ImagePool, PathBuf) {
    let pool = ImagePool::open(config(testbed)).unwrap();
    create(&pool, &volume_of(&pool, "a", 16 * MIB));
    let device = pool.directory.managed().unwrap().device.path();
    fs::remove_file(image_in(&testbed.pool_path())).unwrap();
    (pool, device)
}

fn give_up(testbed: &Testbed, device: &Path) {
    until_unmounted(&mount_point_in(&testbed.pool_path())).unwrap();
    tool::run("losetup", ["--detach".as_ref(), device.as_os_str()]).unwrap();
}

fn save(testbed: &Testbed, device: &Path) {
    let to = image_in(&testbed.pool_path());
    let (from, to) = (format!("if={}", device.display()), format!("of={}", to.display()));
    orlop_sys::file::sync_filesystem(&mount_point_in(&testbed.pool_path())).unwrap();
    tool::run("dd", [&*from, &to, "bs=1M", "iflag=direct", "conv=sparse"]).unwrap();
}

fn findings(testbed: &Testbed) -> Vec<(&'static str, String)> {
    let found = ImagePool::finding_of_image(&testbed.pool_path()).unwrap();
    found.into_iter().map(|it| (it.code, it.problem)).collect()
}

#[test]
fn close_leaves_the_only_copy_of_an_image() {
    let Some(testbed) = Testbed::plain() else { return };
    let (pool, device) = lost(&testbed);
    let refused = try_create(&pool, &volume_of(&pool, "b", 16 * MIB));
    assert!(matches!(refused, Err(Error::Unreachable { .. })), "{refused:?}");
    assert!(pool.health().check().is_err());
    pool.close();
    drop(pool);
    assert_eq!(devices_of_pool_at(&testbed.pool_path()).len(), 1);
    // Also where it was unmounted since, and where a file by the image's name is back.
    for is_mounted in [true, false] {
        if !is_mounted {
            until_unmounted(&mount_point_in(&testbed.pool_path())).unwrap();
        }
        for is_back in [false, true] {
            if is_back {
                save(&testbed, &device);
            }
            let refused = ImagePool::open(config(&testbed)).unwrap_err().to_string();
            assert!(refused.contains(&format!("dd if={} ", device.display())), "{refused}");
            let [("image-lost", problem)] = &findings(&testbed)[..] else { panic!("not found") };
            assert!(problem.contains(device.to_str().unwrap()), "{problem}");
            assert_eq!(devices_of_pool_at(&testbed.pool_path()).len(), 1);
        }
        if is_mounted {
            fs::remove_file(image_in(&testbed.pool_path())).unwrap();
        }
    }
    give_up(&testbed, &device);
    assert!(findings(&testbed).is_empty());
    let pool = testbed.open();
    assert_eq!(pool.catalogue().volumes(None, 0).unwrap().len(), 1);
    pool.close();
    assert!(devices_of_pool_at(&testbed.pool_path()).is_empty());
}

/// `losetup --detach` of a device in use sets a mark.
#[test]
fn an_image_that_a_person_gives_up_is_let_go() {
    let Some(testbed) = Testbed::plain() else { return };
    let (pool, device) = lost(&testbed);
    tool::run("losetup", ["--detach".as_ref(), device.as_os_str()]).unwrap();
    pool.close();
    assert!(devices_of_pool_at(&testbed.pool_path()).is_empty());
}

/// It has the same label, and another daemon may serve it.
#[test]
fn image_of_a_copy_is_not_a_lost_one() {
    let Some(testbed) = Testbed::plain() else { return };
    ImagePool::open(config(&testbed)).unwrap().close();
    let copied = testbed.pool_path().with_extension("copy");
    let [from, to] = [testbed.pool_path(), copied.clone()].map(PathBuf::into_os_string);
    tool::run("cp", ["-a".into(), "--sparse=always".into(), from, to]).unwrap();
    let copy = ImagePool::open(ImagePoolConfig { path: copied, ..config(&testbed) }).unwrap();
    let pool = ImagePool::open(config(&testbed)).unwrap();
    assert!(findings(&testbed).is_empty());
    for pool in [pool, copy] {
        pool.health().check().unwrap();
        pool.close();
    }
}

/// What is mounted there instead is not this pool's, and stays.
#[test]
fn failed_start_leaves_no_device_on_the_image() {
    let Some(testbed) = Testbed::plain() else { return };
    ImagePool::open(config(&testbed)).unwrap().close();
    let point = mount_point_in(&testbed.pool_path());
    let tmpfs = mounts::FsMount {
        device: Path::new("tmpfs"),
        fs_type: "tmpfs",
        options: &[],
        read_only: false,
    };
    mounts::mount_filesystem(&tmpfs, &point).unwrap();
    let refused = ImagePool::open(config(&testbed)).unwrap_err().to_string();
    assert!(refused.contains("tmpfs is mounted there"), "{refused}");
    assert!(devices_of_pool_at(&testbed.pool_path()).is_empty());
    until_unmounted(&point).unwrap();
}
