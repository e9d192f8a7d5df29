//! Fields far beyond any limit.

use std::collections::BTreeMap;

use orlop_tests::*;

/// Nothing that is refused may leave this much behind.
const TOLERATED: u64 = 256 * MIB;
const ENTRIES: usize = 100_000;

/// Refused in few words: by the limit of a field, or of a whole message.
#[track_caller]
fn expect_too_much<T>(answer: Answer<T>) {
    let Err(status) = answer else { panic!("accepted") };
    let codes = [Code::InvalidArgument, Code::OutOfRange, Code::ResourceExhausted];
    assert!(codes.contains(&status.code()), "{status}");
    assert!(status.message().len() <= 1024, "{} bytes of text", status.message().len());
}

fn many() -> BTreeMap<String, String> {
    (0..ENTRIES).map(|n| (format!("key{n}"), "value".to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_fields_are_refused_and_forgotten() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let volume = client.create("v").size(MIB).block().done().await;
    let before = resident_bytes(daemon.pid());

    let small = || client.create("x").size(MIB).block();
    for bytes in [129, 3 << 20, 10 << 20] {
        let long = "x".repeat(bytes);
        expect_too_much(client.create(&long).size(MIB).block().send().await);
        expect_too_much(client.delete(&long).await);
        expect_too_much(client.snapshot(&long, &volume.volume_id).await);
        expect_too_much(small().parameter("pool", &long).send().await);
        expect_too_much(small().from_volume(&long).send().await);
        expect_too_much(small().capability(mount(&long)).send().await);
        expect_too_much(client.controller_unpublish(&volume.volume_id, &long.repeat(2)).await);
    }
    let mut create = small();
    create.request.parameters = many();
    expect_too_much(create.send().await);
    let mut create = small();
    create.request.volume_capabilities = vec![mount("ext4").flags(&["noatime"; 1000])];
    expect_too_much(create.send().await);
    let node = client.on_node(&volume, block());
    let request = v1::NodeStageVolumeRequest { volume_context: many(), ..node.stage_request() };
    expect_too_much(client.node_stage(request).await);
    let request = v1::CreateVolumeGroupSnapshotRequest {
        name: "g".to_owned(),
        source_volume_ids: vec!["x".repeat(129); 10_000],
        ..v1::CreateVolumeGroupSnapshotRequest::default()
    };
    let answer = client.group_controller().create_volume_group_snapshot(request).await;
    expect_too_much(answer);

    // Secrets are not read, so there may be as many as fit into a message.
    let mut create = small();
    create.request.secrets = many();
    create.send().await.unwrap();

    let after = resident_bytes(daemon.pid());
    report(&format!("resident before {} MiB, after {} MiB", before / MIB, after / MIB));
    assert!(after < before + TOLERATED, "{before} bytes became {after}");
    assert_eq!(client.list_volumes().await.unwrap().len(), 2);
}

/// An empty capability is two bytes in a message, and far more once it is parsed.
#[tokio::test(flavor = "multi_thread")]
async fn messages_of_empty_entries_take_bounded_memory() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Daemon::start(&pool).await;
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..8 {
        let client = daemon.client();
        calls.spawn(async move {
            let mut create = client.create(&format!("v{number}")).size(MIB);
            create.request.volume_capabilities = vec![v1::VolumeCapability::default(); 2_000_000];
            create.send().await.map(drop)
        });
    }
    while let Some(answer) = calls.join_next().await {
        let status = answer.unwrap().unwrap_err();
        let codes = [Code::InvalidArgument, Code::Unavailable];
        assert!(codes.contains(&status.code()), "{status}");
    }
    let peak = peak_resident_bytes(daemon.pid());
    report(&format!("peak {} MiB", peak / MIB));
    assert!(peak < TOLERATED, "{peak} bytes");
    daemon.client().create("v").size(MIB).block().done().await;
}
