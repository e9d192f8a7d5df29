//! A device on a file that cannot be asked for its inode any more is known by its path alone, which
//! sysfs shows as it was where the file was opened.

use super::*;
use crate::image::ImagePoolConfig;

/// Two volumes are attached by the pool at `first`, and let go by that at `then`.
fn let_go_after_a_restart(testbed: &Testbed, first: &Path, then: &Path, in_between: impl FnOnce()) {
    let open = |path: &Path| {
        let config = ImagePoolConfig { path: path.to_owned(), ..testbed.config() };
        ImagePool::open(config).unwrap()
    };
    let pool = open(first);
    let records = ["a", "b"].map(|name| create(&pool, &volume_of(&pool, name, 16 * MIB)));
    let devices = records.each_ref().map(|record| {
        let device = pool.devices().ensure_attached(&record.id, RW).unwrap();
        LoopDevice::from_path(&device.path).unwrap()
    });
    drop(pool);
    in_between();
    let pool = open(then);
    orlop_sys::tool::run("xfs_io", ["-x", "-c", "shutdown", testbed.disk().to_str().unwrap()])
        .unwrap();
    let [a, b] = records;
    for (record, device) in [(&a, &devices[0]), (&b, &devices[1])] {
        let found = pool.devices().attached(&record.id, RW).unwrap();
        assert_eq!(found.map(|found| found.path), Some(device.path()));
    }
    pool.devices().ensure_detached(&a.id, RW).unwrap();
    pool.devices().try_detach_unused(&b.id, RW).unwrap();
    for (record, device) in [(&a, &devices[0]), (&b, &devices[1])] {
        // Its number may be that of another file by now.
        let shown = loopdev::backing(device).unwrap().map(|there| there.file);
        let id = record.id.to_string();
        assert!(shown.is_none_or(|file| !file.to_string_lossy().contains(&id)));
    }
    drop(pool);
    testbed.mount_again(orlop_sys::filesystem::FsKind::Xfs, &[]);
}

#[test]
fn a_volume_is_let_go_where_a_link_leads_to_the_pool() {
    let Some(testbed) = Testbed::xfs() else { return };
    let link = testbed.disk().with_extension("link");
    std::os::unix::fs::symlink(testbed.disk(), &link).unwrap();
    let_go_after_a_restart(&testbed, &link.join("pool"), &link.join("pool"), || {});
}

/// As a container has it, which is gone with its mounts.
#[test]
fn a_volume_is_let_go_that_was_attached_at_another_path() {
    let Some(testbed) = Testbed::xfs() else { return };
    let elsewhere = testbed.disk().with_extension("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    for shown in [testbed.disk(), &testbed.pool_path()] {
        drop(testbed.open());
        orlop_sys::mounts::bind(shown, &elsewhere, orlop_sys::mounts::BindAccess::ReadWrite)
            .unwrap();
        let first = elsewhere.join(testbed.pool_path().strip_prefix(shown).unwrap());
        let unmount = || {
            orlop_sys::tool::run("umount", ["--lazy", elsewhere.to_str().unwrap()]).unwrap();
        };
        let_go_after_a_restart(&testbed, &first, &testbed.pool_path(), unmount);
        let pool = testbed.open();
        for name in ["a", "b"] {
            pool.provisioner().ensure_no_volume(&volume_id(&pool, name)).unwrap();
        }
    }
}
