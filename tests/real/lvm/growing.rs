//! Growing under a file that is open: no unmount, however short, would get past it.

use std::fs::File;
use std::io::Write;

use orlop_tests::*;

const BEFORE: u64 = 320 * MIB;
const AFTER: u64 = 640 * MIB;
const DATA: u64 = 3 * MIB;

async fn mounted_filesystems_grow(client: &Client) {
    for fs in ["ext4", "xfs", "btrfs"] {
        let volume = client.create(fs).size(BEFORE).fs(fs).done().await;
        let node = client.on_node(&volume, mount(fs));
        node.up().await;
        Pattern::new(1).write(&node.data_path(), DATA);
        let mut open = File::create(node.target.join("open")).unwrap();
        open.write_all(b"before").unwrap();

        client.expand(&node.id, AFTER).await.unwrap();
        assert_eq!(node.expand(AFTER).await.unwrap(), int(AFTER));
        assert_size(&node, AFTER);
        open.write_all(b", after").unwrap();
        drop(open);
        assert_eq!(std::fs::read(node.target.join("open")).unwrap(), b"before, after");
        // What it has grown by can be used: more than there was room for.
        let filler = File::create(node.target.join("filler")).unwrap();
        let mode = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(&filler, mode, 0, BEFORE).unwrap();
        let last = BEFORE - MIB;
        drop(filler);
        Pattern::new(2).write_at(&node.target.join("filler"), last, MIB);

        node.down().await;
        node.up().await;
        assert_size(&node, AFTER);
        Pattern::new(1).check(&node.data_path(), DATA);
        let filler = File::open(node.target.join("filler")).unwrap();
        let mut found = vec![0; 1 << 20];
        std::os::unix::fs::FileExt::read_exact_at(&filler, &mut found, last).unwrap();
        assert!(found == Pattern::new(2).bytes(last, 1 << 20), "{fs} lost what was written");
        drop(filler);
        node.down().await;
        client.delete(&node.id).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mounted_filesystems_grow_on_lvm() {
    needs_device_mapper!();
    let group = TestLvm::new(super::SIZE);
    let daemon = group.launch().start().await;
    mounted_filesystems_grow(&daemon.client()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mounted_filesystems_grow_on_encrypted_lvm() {
    needs_device_mapper!();
    let group = TestLvm::new(super::SIZE);
    let daemon = group.launch().start().await;
    mounted_filesystems_grow(&daemon.client().encrypting("of volumes that grow")).await;
}
