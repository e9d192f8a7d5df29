//! Calls that end early, and plugins that end.

use std::time::{Duration, Instant};

use orlop_csi::BindError;
use orlop_model::Pool;
use tonic::Code;

use crate::plugin::{Plugin, code, log, new_volume};

/// Until it holds; a test that waits in vain fails rather than hangs.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what} never came");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn hang_ups() -> usize {
    log().text().matches("the caller hung up").count()
}

/// A creation that stands before the pool's door, and whose caller has gone.
async fn abandoned_creation(plugin: &Plugin, name: &'static str) {
    // Hang-ups are counted in the log that all tests share.
    static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _turn = ONE_AT_A_TIME.lock().await;
    plugin.gate.close();
    let mut controller = plugin.controller();
    let before = hang_ups();
    let caller = tokio::spawn(async move { controller.create_volume(new_volume(name)).await });
    until("the creation", || plugin.gate.waiting() == 1).await;
    caller.abort();
    until("the hang-up", || hang_ups() > before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn create_finishes_after_the_client_hangs_up() {
    let plugin = Plugin::start().await;
    abandoned_creation(&plugin, "abandoned").await;
    let busy = plugin.controller().create_volume(new_volume("abandoned")).await;
    assert_eq!(code(busy), Code::Aborted, "GEN-23");
    plugin.gate.open();
    until("the volume", || plugin.pool.catalogue().volumes(None, 0).unwrap().len() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn panic_is_internal_and_the_plugin_survives() {
    let plugin = Plugin::start().await;
    plugin.gate.set_trap();
    let answer = plugin.controller().create_volume(new_volume("trapped")).await;
    assert_eq!(code(answer), Code::Internal);
    plugin.volume("trapped").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_waits_for_abandoned_work_and_removes_the_socket() {
    let mut plugin = Plugin::start().await;
    abandoned_creation(&plugin, "last").await;
    plugin.stop();
    until("the end of accepting", || {
        std::os::unix::net::UnixStream::connect(&plugin.socket).is_err()
    })
    .await;
    assert!(!plugin.serving.is_finished());
    plugin.gate.open();
    (&mut plugin.serving).await.unwrap().unwrap();
    assert_eq!(plugin.pool.catalogue().volumes(None, 0).unwrap().len(), 1);
    assert!(!plugin.socket.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_answers_running_calls() {
    let mut plugin = Plugin::start().await;
    plugin.gate.close();
    let mut controller = plugin.controller();
    let call = tokio::spawn(async move { controller.create_volume(new_volume("last")).await });
    until("the creation", || plugin.gate.waiting() == 1).await;
    plugin.stop();
    plugin.gate.open();
    assert_eq!(code(call.await.unwrap()), Code::Ok);
    (&mut plugin.serving).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn live_socket_is_kept_and_dead_one_replaced() {
    let plugin = Plugin::start().await;
    assert!(matches!(orlop_csi::bind(&plugin.socket), Err(BindError::Live(_))));
    plugin.volume("still-served").await;

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("csi.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    orlop_csi::bind(&path).unwrap();
}
