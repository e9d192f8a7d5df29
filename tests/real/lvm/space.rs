//! What is given back reaches the thin pool.

use orlop_sys::tool;
use orlop_tests::*;

const WRITTEN: u64 = 32 * MIB;

/// What the kernel gives back a moment after it was asked to.
async fn until_used(group: &TestLvm, at_most: u64) {
    for _ in 0..600 {
        if group.used_bytes() <= at_most {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("{} bytes are in use, {at_most} were expected at most", group.used_bytes());
}

#[tokio::test(flavor = "multi_thread")]
async fn discarded_blocks_of_a_device_return_to_the_thin_pool() {
    needs_device_mapper!();
    let group = TestLvm::new(super::SIZE);
    let daemon = group.launch().start().await;
    let client = daemon.client();
    let volume = client.create("raw").size(64 * MIB).block().done().await;
    let node = client.on_node(&volume, block());
    node.up().await;
    let before = group.used_bytes();
    Pattern::new(1).write(&node.target, WRITTEN);
    assert!(group.used_bytes() >= before + WRITTEN, "nothing was taken");
    let target = node.target.to_str().unwrap();
    tool::run("blkdiscard", ["--length", &WRITTEN.to_string(), target]).unwrap();
    until_used(&group, before).await;
    assert!(is_all_zero(&node.target, 0, WRITTEN));
    node.down().await;
    client.delete(&node.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_files_return_to_the_thin_pool() {
    needs_device_mapper!();
    let group = TestLvm::new(super::SIZE);
    let daemon = group.launch().start().await;
    let client = daemon.client();
    for fs in ["ext4", "xfs"] {
        let volume = client.create(fs).size(320 * MIB).fs(fs).done().await;
        let node = client.on_node(&volume, mount(fs));
        node.up().await;
        let file = node.target.join("file");
        Pattern::new(2).write(&file, WRITTEN);
        let full = group.used_bytes();
        std::fs::remove_file(&file).unwrap();
        // Else the filesystem has not freed them yet.
        orlop_sys::file::sync_filesystem(&node.target).unwrap();
        // XFS frees the blocks of removed files in the background.
        let mut trims = 0;
        while group.used_bytes() > full - WRITTEN * 9 / 10 {
            assert!(trims < 100, "{} of {full} bytes are in use", group.used_bytes());
            trims += 1;
            tool::run("fstrim", [node.target.to_str().unwrap()]).unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        node.down().await;
        client.delete(&node.id).await.unwrap();
    }
    // Deleted volumes take nothing.
    until_used(&group, 0).await;
}
