//! Two controllers at once, which know nothing of each other.

use orlop_tests::*;

use crate::ceph::{VOLUME, delete, persist};

/// Of one call that is made by many at once; ABORTED means that another one was at it.
async fn raced<T: Send + 'static>(
    calls: Vec<impl Future<Output = Answer<T>> + Send + 'static>,
) -> Vec<T> {
    let racing: Vec<_> = calls.into_iter().map(tokio::spawn).collect();
    let mut answers = Vec::new();
    for call in racing {
        match call.await.unwrap() {
            Ok(answer) => answers.push(answer),
            Err(status) => assert_eq!(status.code(), Code::Aborted, "{status}"),
        }
    }
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_creates_of_one_name_make_one_image() {
    needs_root!();
    let ceph = TestCeph::shared();
    let controllers = [ceph.controller("race-1").await, ceph.controller("race-2").await];
    for round in 0..5 {
        let name = format!("race {round}");
        let calls = (0..8).map(|turn| {
            let client = controllers[turn % 2].client();
            client.create(&name).size(VOLUME).block().send()
        });
        let made = raced(calls.collect()).await;
        let first = made.first().expect("at least one create succeeds").volume_id.clone();
        assert!(made.iter().all(|volume| volume.volume_id == first));
        let images = ceph.images().into_iter().filter(|image| *image == first).count();
        assert_eq!(images, 1);
        for controller in &controllers {
            let again = controller.client().create(&name).size(VOLUME).block().done().await;
            assert_eq!(again.volume_id, first);
            let other = controller.client().create(&name).size(2 * VOLUME).block();
            expect_code(other.send().await, Code::AlreadyExists);
        }
        delete(&controllers[round % 2].client(), &first).await;
        assert!(!ceph.images().contains(&first));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_creates_with_two_sizes_make_one_volume() {
    needs_root!();
    let ceph = TestCeph::shared();
    let controllers = [ceph.controller("sizes-1").await, ceph.controller("sizes-2").await];
    for round in 0..5 {
        let name = format!("of two sizes {round}");
        let racing = [0, 1].map(|turn| {
            let create = controllers[turn].client().create(&name).block();
            let size = VOLUME << turn;
            // For exactly this size, so that it fits no other.
            tokio::spawn(async move {
                persist(|| {
                    let create = create.clone().size(size).limit(size);
                    async move {
                        match create.send().await {
                            Err(status) if status.code() == Code::AlreadyExists => Ok(None),
                            answer => answer.map(Some),
                        }
                    }
                })
                .await
            })
        });
        let mut made = Vec::new();
        for call in racing {
            made.extend(call.await.unwrap());
        }
        let [volume] = made.as_slice() else { panic!("not one of the two: {made:?}") };
        let listed = controllers[round % 2].client().list_volumes().await.unwrap();
        let listed = listed.into_iter().map(|entry| entry.volume.unwrap());
        let same: Vec<_> = listed.filter(|each| each.volume_id == volume.volume_id).collect();
        assert_eq!(same, std::slice::from_ref(volume));
        delete(&controllers[round % 2].client(), &volume.volume_id).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_publishes_give_the_volume_to_one_node() {
    needs_root!();
    let ceph = TestCeph::shared();
    let controllers = [ceph.controller("pub-1").await, ceph.controller("pub-2").await];
    let nodes = [ceph.node("pub-a").await, ceph.node("pub-b").await];
    let client = controllers[0].client();
    let volume = client.create("published once").size(VOLUME).block().done().await.volume_id;
    expect_code(client.controller_publish(&volume, "pub-z", block(), false).await, Code::NotFound);
    for _ in 0..5 {
        let calls = [("pub-a", 0), ("pub-b", 1)].map(|(node, controller)| {
            let (client, volume) = (controllers[controller].client(), volume.clone());
            tokio::spawn(async move {
                client.controller_publish(&volume, node, block(), false).await.map(|_| node)
            })
        });
        let mut holders = Vec::new();
        for call in calls {
            match call.await.unwrap() {
                Ok(node) => holders.push(node),
                Err(status) => {
                    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
                }
            }
        }
        let [holder] = holders.as_slice() else { panic!("{holders:?} all have the volume") };
        let status = client.get_volume(&volume).await.unwrap().status.unwrap();
        assert_eq!(status.published_node_ids, [*holder]);
        controllers[1].client().controller_unpublish(&volume, holder).await.unwrap();
    }
    delete(&client, &volume).await;
    drop(nodes);
}
