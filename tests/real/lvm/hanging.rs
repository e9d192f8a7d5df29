//! A command of LVM that hangs, as behind another one that waits for a dead disk: other pools do not notice, and the
//! daemon says so.

use orlop_tests::*;

use crate::daemon::hung::until;

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_hangs_holds_up_no_other_pool() {
    needs_device_mapper!();
    let group = TestLvm::new(super::SIZE);
    let daemon = group.launch_beside_a_directory().start().await;
    let client = daemon.client();
    let create =
        |pool: &str, name: &str| client.create(name).size(64 * MIB).block().parameter("pool", pool);
    // The daemon is ready as soon as one pool is open.
    until("the pool is open", || async { create("lvm", "before").send().await.is_ok() }).await;
    let before = create("lvm", "before").done().await;

    let lock = group.lock();
    let waiting = tokio::spawn(create("lvm", "waiting").send());
    until("it is known", || async {
        assert!(client.probe().await.unwrap(), "the daemon is not ready");
        // Until then each call that needs LVM would begin, and wait as well; this one does not need it.
        client.expand(&before.volume_id, 64 * MIB).await.is_err()
    })
    .await;
    assert!(!client.storage_health().await.unwrap().is_empty());
    for number in 0..10 {
        create("local", &format!("other-{number}")).done().await;
    }
    let refused = expect_code(create("lvm", "refused").send().await, Code::Unavailable);
    assert!(refused.message().contains("pool lvm"), "{refused}");
    assert!(!waiting.is_finished(), "a create went on without LVM");

    drop(lock);
    // What changes something is never killed: what was begun is finished.
    waiting.await.unwrap().unwrap();
    until("it answers", || async { client.storage_health().await.unwrap().is_empty() }).await;
    create("lvm", "after").done().await;
    assert_eq!(client.list_volumes().await.unwrap().len(), 13);
}
