//! A daemon has ended, and threads of it still wait in the kernel for a pool that hangs: the next one
//! serves everything else, and that pool when its disk answers.

use std::time::Duration;

use orlop_sys::tool;
use orlop_tests::*;
use rustix::process::Signal;

use super::hung::{Frozen, answered, assert_served, on_pool, until};

const VOLUME: u64 = MIB;
/// So many calls wait in the kernel.
const CALLS: usize = 8;

/// Each call takes another lock, and makes a file under staging/.
async fn hang_on(client: &Client, pool: &str) {
    for number in 0..CALLS {
        let create = on_pool(client, &format!("stuck {number}"), pool);
        tokio::spawn(async move { create.send().await });
    }
    // Known to have begun once another call waits for its lock in vain.
    until("begun", || async {
        let again = on_pool(client, "stuck 0", pool).send();
        let again = tokio::time::timeout(Duration::from_secs(15), again).await;
        again.is_ok_and(|answer| answer.is_err_and(|status| status.code() == Code::Aborted))
    })
    .await;
}

/// Each time by another connection: the former daemon may still have its socket, and answers nothing.
pub(super) async fn until_served(daemon: &Daemon) -> Client {
    until("served", || async {
        let client = daemon.client();
        let asked = tokio::time::timeout(Duration::from_secs(5), client.capacity()).await;
        asked.is_ok_and(|answer| answer.is_ok_and(|answer| answer.available_capacity > 0))
    })
    .await;
    daemon.client()
}

/// The pool that hung is taken into service without a restart.
async fn until_in_service(client: &Client) {
    let create = || on_pool(client, "first after the thaw", "hung").send();
    until("in service", || async { create().await.is_ok() }).await;
    let volume = create().await.unwrap();
    client.delete(&volume.volume_id).await.unwrap();
}

/// Volumes on both pools are in use; one pool hangs, with calls on it; the daemon gets the signal.
async fn a_successor_serves_the_others(signal: Signal) {
    let well = TestPool::new(PoolFs::Xfs, 400 * MIB);
    let hung = well.beside("hung", PoolFs::Xfs, GIB);
    let pools = [("hung", &hung, ""), ("well", &well, "")];
    let mut daemon = Launch::on_several(&pools).start().await;
    let client = daemon.client();
    let kept = on_pool(&client, "kept", "hung").done().await;
    let node = client.on_node(&kept, block());
    node.up().await;
    Pattern::new(1).write(&node.target, VOLUME);
    let used = on_pool(&client, "used", "well").done().await;
    client.on_node(&used, block()).up().await;

    let frozen = Frozen::new(&hung);
    hang_on(&client, "hung").await;
    daemon.signal(signal);
    if signal == Signal::TERM {
        until("stopped", || async { daemon.log().contains("stopped") }).await;
    }
    let mut former = daemon.start_beside();
    let client = until_served(&daemon).await;
    assert!(!former.has_ended(), "nothing of the former daemon was left, which proves nothing");
    assert_served(&client, "beside what is left").await;
    answered(client.on_node(&used, block()).down()).await;
    answered(client.delete(&used.volume_id)).await.unwrap();
    let absent = expect_code(answered(client.delete(&kept.volume_id)).await, Code::Unavailable);
    assert!(absent.message().contains("pool hung"), "{absent}");
    expect_code(answered(on_pool(&client, "new", "hung").send()).await, Code::Unavailable);
    assert!(answered(client.probe()).await.unwrap(), "the other pool serves");
    assert!(!former.has_ended(), "the pool was not frozen all the time");

    drop(frozen);
    former.wait_for_end();
    until_in_service(&client).await;
    let node = client.on_node(&kept, block());
    Pattern::new(1).check(&node.target, VOLUME);
    node.down().await;
    for number in 0..CALLS {
        let volume = on_pool(&client, &format!("stuck {number}"), "hung").done().await;
        client.delete(&volume.volume_id).await.unwrap();
    }
    client.delete(&kept.volume_id).await.unwrap();
    assert_eq!(client.list_volumes().await.unwrap().len(), 0);
    assert!(hung.entries("staging").is_empty(), "{:?}", hung.entries("staging"));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_hung_pool_is_absent_after_a_stop() {
    needs_root!();
    a_successor_serves_the_others(Signal::TERM).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_hung_pool_is_absent_after_a_kill() {
    needs_root!();
    a_successor_serves_the_others(Signal::KILL).await;
}

/// It hangs when it is opened, before anything is known of it.
#[tokio::test(flavor = "multi_thread")]
async fn hung_start_can_be_stopped_and_repeated() {
    needs_root!();
    let well = TestPool::new(PoolFs::Xfs, 400 * MIB);
    let hung = well.beside("hung", PoolFs::Xfs, 400 * MIB);
    let pools = [("hung", &hung, ""), ("well", &well, "")];
    let mut daemon = Launch::on_several(&pools).start().await;
    let kept = on_pool(&daemon.client(), "kept", "hung").done().await;
    daemon.terminate();
    let frozen = Frozen::new(&hung);
    daemon.start_again();
    let opening = daemon.client();
    until("answered", || async { opening.probe().await.is_ok() }).await;
    daemon.signal(Signal::TERM);
    until("stopped again", || async { daemon.log().matches("stopped").count() == 2 }).await;
    let former = daemon.start_beside();
    let client = until_served(&daemon).await;
    expect_code(answered(client.delete(&kept.volume_id)).await, Code::Unavailable);
    drop(frozen);
    assert_eq!(former.wait_for_end().code(), Some(0));
    until_in_service(&client).await;
    client.delete(&kept.volume_id).await.unwrap();
}

/// A killed daemon left it frozen for a snapshot. ext4 writes when it is thawed.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_does_not_wait_to_thaw_on_a_hung_pool() {
    needs_root!();
    let well = TestPool::new(PoolFs::Xfs, 400 * MIB);
    let hung = well.beside("hung", PoolFs::Xfs, 400 * MIB);
    let pools = [("hung", &hung, ""), ("well", &well, "")];
    let mut daemon = Launch::on_several(&pools).start().await;
    let client = daemon.client();
    let create = client.create("kept").size(64 * MIB).fs("ext4").parameter("pool", "hung");
    let node = client.on_node(&create.done().await, mount("ext4"));
    node.up().await;
    daemon.terminate();
    let left = RecordedFreeze::begin(daemon.launch(), &node.staging);
    let frozen = Frozen::new(&hung);
    daemon.start_again();
    let client = until_served(&daemon).await;
    assert_served(&client, "while it is frozen").await;
    assert!(left.is_recorded(), "it was thawed, which proves nothing");
    drop(frozen);
    until("thawed", || async { !left.is_recorded() }).await;
    assert!(!left.lasts());
    until_in_service(&client).await;
    node.down().await;
    client.delete(&node.id).await.unwrap();
}

/// A managed pool unmounts its image, which writes, and no call has asked whether the disk answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_wait_to_close_a_hung_pool() {
    needs_root!();
    let well = TestPool::new(PoolFs::Xfs, 400 * MIB);
    let hung = well.beside("hung", PoolFs::Xfs, GIB);
    let managed = "image_size = \"400MiB\"";
    let pools = [("hung", &hung, managed), ("well", &well, "")];
    let mut daemon = Launch::on_several(&pools).start().await;
    let kept = on_pool(&daemon.client(), "kept", "hung").done().await;
    // What is only in memory is written when the image is unmounted.
    let staging = hung.path.join("mnt/staging");
    tool::run("touch", [staging.to_str().unwrap()]).unwrap();
    let frozen = Frozen::new(&hung);
    daemon.signal(Signal::TERM);
    until("stopped", || async { daemon.log().contains("stopped") }).await;
    assert!(daemon.has_logged("without closing a pool that does not respond"));
    let former = daemon.start_beside();
    let client = until_served(&daemon).await;
    assert_served(&client, "beside what is left").await;
    expect_code(answered(client.delete(&kept.volume_id)).await, Code::Unavailable);
    drop(frozen);
    former.wait_for_end();
    until_in_service(&client).await;
    client.delete(&kept.volume_id).await.unwrap();
}
