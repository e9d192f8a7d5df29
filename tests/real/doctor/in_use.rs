//! What is wrong with volumes that are in use, beside the daemon that staged them and without it.

use orlop_sys::{loopdev, tool};
use orlop_tests::*;

use crate::doctor::fixture::Fixture;

const VOLUME: u64 = 320 * MIB;

#[tokio::test(flavor = "multi_thread")]
async fn a_use_that_is_broken_is_reported() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Xfs).await;
    let volume = fixture.client.create("a").size(VOLUME).fs("ext4").done().await;
    let node = fixture.client.on_node(&volume, mount("ext4"));
    node.up().await;
    fixture.doctor(&[]).expect(0, &[]);

    tool::run("umount", [&node.target]).unwrap();
    fixture.not_repairable("mount-missing");
    let report = fixture.doctor(&[]);
    assert!(report.text.contains(node.target.to_str().unwrap()), "{}", report.text);
    assert_eq!(report.document["findings"][0]["reason"], "MountMissing");
    node.publish().await.unwrap();
    fixture.doctor(&[]).expect(0, &[]);

    let remount = |how: &str| {
        let option = format!("remount,{how}");
        tool::run("mount", ["-o".as_ref(), option.as_ref(), node.staging.as_os_str()]).unwrap();
    };
    remount("ro");
    fixture.not_repairable("filesystem-read-only");
    remount("rw");
    let device = loopdev::find(&fixture.pool.volume_data(&node.id), false).unwrap().unwrap();
    let name = device.path().file_name().unwrap().to_owned();
    let of_ext4 = std::path::Path::new("/sys/fs/ext4").join(name);
    std::fs::write(of_ext4.join("trigger_fs_error"), "a test").unwrap();
    fixture.not_repairable("filesystem-errors");
    node.down().await;
    fixture.daemon.terminate();
    fixture.doctor(&[]).expect(0, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_is_gone_is_reported() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Xfs).await;
    let volume = fixture.client.create("a").size(16 * MIB).block().done().await;
    let node = fixture.client.on_node(&volume, block());
    node.stage().await.unwrap();
    fixture.daemon.terminate();
    fixture.doctor(&[]).expect(0, &[]);
    let device = loopdev::find(&fixture.pool.volume_data(&node.id), false).unwrap().unwrap();
    loopdev::ensure_detached(&device, &node.id).unwrap();
    fixture.not_repairable("device-missing");
    fixture.daemon.restart().await;
    node.unstage().await.unwrap();
    fixture.doctor(&[]).expect(0, &[]);
}
