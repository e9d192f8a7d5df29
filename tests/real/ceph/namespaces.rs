//! Mounts that another process keeps in another mount namespace.

use orlop_tests::*;

use crate::ceph::{VOLUME, delete, down_from, up_on};

#[tokio::test(flavor = "multi_thread")]
async fn other_mount_namespace_does_not_keep_an_image() {
    needs_root!();
    let ceph = TestCeph::shared();
    let controller = ceph.controller("kept-c").await;
    let node = ceph.node("kept-n").await;
    let client = controller.client();
    for capability in [mount("ext4"), mount("xfs"), mount("btrfs"), block()] {
        let create = client.create("kept").size(VOLUME).capability(capability.clone());
        let volume = create.done().await;
        let used = up_on(&client, &node, "kept-n", &volume, capability.clone()).await;
        let holder = match capability.is_block() {
            true => MountHolder::of(&[&used.target]),
            false => MountHolder::of(&[&used.staging, &used.target]),
        };
        down_from(&client, "kept-n", &used).await;
        assert_eq!(node.leaks(), [""; 0]);
        delete(&client, &used.id).await;
        drop(holder);
    }
}
