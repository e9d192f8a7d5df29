//! Target paths: long ones, links, those that are there already, and one that two volumes want.

use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

use orlop_tests::*;

use super::{VOLUME, staged};

/// NP-09 to NP-11, NP-39, NN-03: made if it is missing, used if it is there, gone afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_target_may_be_there_already() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for capability in [mount("ext4"), block()] {
        let node = staged(&client, capability.clone()).await;
        for made_before in [false, true] {
            if made_before && capability.is_block() {
                File::create(&node.target).unwrap();
            } else if made_before {
                std::fs::create_dir(&node.target).unwrap();
            }
            node.publish().await.unwrap();
            let found = std::fs::symlink_metadata(&node.target).unwrap();
            let is_device = found.file_type().is_block_device();
            assert_eq!(is_device, capability.is_block());
            assert_eq!(mounts_at(&node.target), 1);
            node.unpublish().await.unwrap();
            assert!(!node.target.exists(), "the target is left");
        }
        node.unstage().await.unwrap();
        client.delete(&node.id).await.unwrap();
    }
}

/// A path of exactly this many bytes, with all directories above it.
fn long_path(client: &Client, bytes: usize) -> PathBuf {
    const LONGEST_NAME: usize = 200;
    let mut path = client.scratch().ensure_dir("long");
    loop {
        let missing = bytes - path.as_os_str().len();
        if missing <= LONGEST_NAME + 1 {
            return path.join("t".repeat(missing - 1));
        }
        // What stays must be enough for a slash and a name.
        let name = LONGEST_NAME.min(missing - 3);
        path.push("d".repeat(name));
        std::fs::create_dir(&path).unwrap();
    }
}

/// NP-14, NS-09, NU-08, NN-09, ST-13, NE-19, GEN-06, GEN-07
#[tokio::test(flavor = "multi_thread")]
async fn long_paths_are_supported() {
    needs_root!();
    const PATH_MAX: usize = 4096;
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for capability in [mount("ext4"), block()] {
        for length in [200, PATH_MAX - 1] {
            let create = client.create("volume").size(VOLUME);
            let volume = create.capability(capability.clone()).done().await;
            let mut node = client.on_node(&volume, capability.clone());
            node.target = long_path(&client, length);
            let name = node.target.file_name().unwrap().len();
            node.staging = node.target.with_file_name("s".repeat(name));
            std::fs::create_dir(&node.staging).unwrap();
            node.up().await;
            assert_eq!(mounts_at(&node.target), 1, "{length}");
            node.stats().await.unwrap();
            client.node_stats(&node.id, &node.staging).await.unwrap();
            node.expand(VOLUME).await.unwrap();
            node.publish().await.unwrap();
            node.down().await;
            client.delete(&node.id).await.unwrap();
            orlop_sys::file::remove_tree(&client.scratch().join("long")).unwrap();
        }
    }
}

/// Links on the way are the operator's choice; a link in the target's place could lead anywhere.
#[tokio::test(flavor = "multi_thread")]
async fn parent_symlinks_are_followed_final_ones_refused() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, 4 * GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let real = client.scratch().ensure_dir("real");
    let way = client.scratch().join("way");
    std::os::unix::fs::symlink(&real, &way).unwrap();
    for capability in [mount("ext4"), block()] {
        let node = staged(&client, capability).await;
        let through_link = way.join("target");
        node.publish_at(&through_link, false).await.unwrap();
        assert_eq!(mounts_at(&real.join("target")), 1);
        node.publish_at(&through_link, false).await.unwrap();
        client.node_stats(&node.id, &through_link).await.unwrap();
        node.unpublish_at(&through_link).await.unwrap();
        assert!(!real.join("target").exists());

        let link = client.new_target("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        node.publish_at(&link, false).await.unwrap_err();
        assert_eq!(mounts_at(&real), 0, "mounted where a link led");
        assert_eq!(std::fs::read_link(&link).unwrap(), real, "the link changed");
        std::fs::remove_file(&link).unwrap();
        node.unpublish_at(&link).await.unwrap();
        node.unstage().await.unwrap();
        client.delete(&node.id).await.unwrap();
    }
}

/// Two volumes that come to one path at once: one of them gets it, and finds itself there.
#[tokio::test(flavor = "multi_thread")]
async fn second_volume_at_one_path_is_refused() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, GIB);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let mut nodes = Vec::new();
    for name in ["first", "second"] {
        let volume = client.create(name).size(VOLUME).capability(mount("ext4")).done().await;
        nodes.push(client.on_node(&volume, mount("ext4")));
    }
    let (first, own) = (nodes[0].clone(), nodes[1].clone());
    let mut second = own.clone();
    second.staging.clone_from(&first.staging);
    let refused = |answer: &Answer<()>| {
        answer
            .as_ref()
            .is_err_and(|status| matches!(status.code(), Code::FailedPrecondition | Code::Aborted))
    };
    for round in 0..20 {
        let (one, other) = tokio::join!(first.stage(), second.stage());
        assert!(one.is_ok() != other.is_ok(), "{round}: {one:?}, {other:?}");
        assert!(refused(&one) || refused(&other), "{round}: {one:?}, {other:?}");
        assert_eq!(mounts_at(&first.staging), 1, "{round}");
        let (winner, loser) = if one.is_ok() { (&first, &second) } else { (&second, &first) };
        // The one goes as the other comes.
        let (gone, come) = tokio::join!(winner.unstage(), loser.stage());
        gone.unwrap();
        assert!(come.is_ok() || refused(&come), "{round}: {come:?}");
        assert_eq!(mounts_at(&first.staging), usize::from(come.is_ok()), "{round}");
        loser.unstage().await.unwrap();
        std::fs::create_dir_all(&first.staging).unwrap();
    }

    first.stage().await.unwrap();
    own.stage().await.unwrap();
    let mut second = own.clone();
    second.target.clone_from(&first.target);
    for round in 0..20 {
        let (one, other) = tokio::join!(first.publish(), second.publish());
        assert!(one.is_ok() != other.is_ok(), "{round}: {one:?}, {other:?}");
        let (winner, loser) = if one.is_ok() { (&first, &second) } else { (&second, &first) };
        let (gone, come) = tokio::join!(winner.unpublish(), loser.publish());
        gone.unwrap();
        assert!(come.is_ok() || refused(&come), "{round}: {come:?}");
        assert_eq!(mounts_at(&first.target), usize::from(come.is_ok()), "{round}");
        loser.unpublish().await.unwrap();
    }
    first.unstage().await.unwrap();
    own.unstage().await.unwrap();
}
