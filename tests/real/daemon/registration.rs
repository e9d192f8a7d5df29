//! The daemon registers itself with kubelet, by a socket in kubelet's directory for plugins.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use orlop_csi::proto::pluginregistration::registration_client::RegistrationClient;
use orlop_csi::proto::pluginregistration::{InfoRequest, PluginInfo, RegistrationStatus};
use orlop_tests::*;

use crate::daemon::hung::until;
use crate::daemon::misconfigured::refused;

const SOCKET: &str = "csi.orlop.io-reg.sock";

/// A pool, and the directory that kubelet watches.
fn surroundings() -> (TestPool, PathBuf) {
    let pool = TestPool::new(PoolFs::Directory, 0);
    let registry = pool.scratch().ensure_dir("kubelet/plugins_registry");
    (pool, registry)
}

/// As kubelet asks: on a new connection each time.
async fn info(daemon: &Daemon, socket: &Path) -> Answer<PluginInfo> {
    let mut client = RegistrationClient::new(daemon.client_at(socket).channel());
    Ok(client.get_info(InfoRequest {}).await?.into_inner())
}

async fn notify(daemon: &Daemon, socket: &Path, error: &str) {
    let mut client = RegistrationClient::new(daemon.client_at(socket).channel());
    let status =
        RegistrationStatus { plugin_registered: error.is_empty(), error: error.to_owned() };
    client.notify_registration_status(status).await.unwrap();
}

async fn until_answered(daemon: &Daemon, socket: &Path) {
    until("kubelet is answered", || async { info(daemon, socket).await.is_ok() }).await;
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Tells one socket from the next at its path, which may get the same inode number.
fn identity(path: &Path) -> Option<(u64, i64, i64)> {
    let found = path.symlink_metadata().ok()?;
    Some((found.ino(), found.ctime(), found.ctime_nsec()))
}

#[tokio::test(flavor = "multi_thread")]
async fn kubelet_learns_where_the_csi_socket_is() {
    needs_root!();
    let (pool, registry) = surroundings();
    let mut daemon = Launch::on(&pool).env("ORLOP_REGISTER", &registry).idle();
    daemon.start_again();
    let socket = registry.join(SOCKET);
    until("the socket is there", || async { socket.exists() }).await;
    // Not sooner than the CSI socket, which kubelet calls next.
    let mut identity = daemon.client().identity();
    identity.get_plugin_info(v1::GetPluginInfoRequest {}).await.unwrap();
    until_answered(&daemon, &socket).await;
    let expected = PluginInfo {
        r#type: "CSIPlugin".to_owned(),
        name: "csi.orlop.io".to_owned(),
        endpoint: daemon.launch().socket().to_str().unwrap().to_owned(),
        supported_versions: vec!["1.0.0".to_owned()],
    };
    assert_eq!(info(&daemon, &socket).await.unwrap(), expected);
    assert_eq!(socket.symlink_metadata().unwrap().permissions().mode() & 0o777, 0o600);
    notify(&daemon, &socket, "").await;
    until("logged", || async { daemon.log().contains("registered with kubelet") }).await;
    // And nothing else is served there.
    expect_code(daemon.client_at(&socket).probe().await, Code::Unimplemented);
    daemon.terminate();
    assert_eq!(names_in(&registry), [""; 0]);
}

/// In a container the CSI socket may have another path than on the host.
#[tokio::test(flavor = "multi_thread")]
async fn the_path_on_the_host_and_the_name_can_be_set() {
    needs_root!();
    let (pool, registry) = surroundings();
    let daemon = Launch::on(&pool)
        .env("ORLOP_DRIVER_NAME", "other.example")
        .env("ORLOP_KUBELET_ENDPOINT", "unix:///var/lib/kubelet/plugins/other.example/csi.sock")
        // Wins over the variable.
        .env("ORLOP_REGISTER", "/nowhere")
        .arg(format!("--register={}", registry.display()))
        .start()
        .await;
    let socket = registry.join("other.example-reg.sock");
    until_answered(&daemon, &socket).await;
    let info = info(&daemon, &socket).await.unwrap();
    assert_eq!(info.name, "other.example");
    assert_eq!(info.endpoint, "/var/lib/kubelet/plugins/other.example/csi.sock");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_socket_of_a_killed_daemon_is_replaced() {
    needs_root!();
    let (pool, registry) = surroundings();
    let mut daemon = Launch::on(&pool).env("ORLOP_REGISTER", &registry).start().await;
    let socket = registry.join(SOCKET);
    until_answered(&daemon, &socket).await;
    daemon.kill9();
    assert!(socket.exists());
    daemon.restart().await;
    until_answered(&daemon, &socket).await;
    daemon.terminate();
    assert_eq!(names_in(&registry), [""; 0]);
}

/// kubelet's directory may be cleaned, or removed with all that is in it.
#[tokio::test(flavor = "multi_thread")]
async fn a_socket_that_is_removed_is_made_again() {
    needs_root!();
    let (pool, registry) = surroundings();
    let mut daemon = Launch::on(&pool).env("ORLOP_REGISTER", &registry).start().await;
    let socket = registry.join(SOCKET);
    for removes_directory in [false, true] {
        until_answered(&daemon, &socket).await;
        std::fs::remove_file(&socket).unwrap();
        if removes_directory {
            std::fs::remove_dir(&registry).unwrap();
        }
    }
    until_answered(&daemon, &socket).await;
    daemon.terminate();
    assert_eq!(names_in(&registry), [""; 0]);
}

/// kubelet does not try again until it sees a new socket.
#[tokio::test(flavor = "multi_thread")]
async fn a_registration_that_failed_is_logged_and_tried_again() {
    needs_root!();
    let (pool, registry) = surroundings();
    let mut daemon = Launch::on(&pool).env("ORLOP_REGISTER", &registry).start().await;
    let socket = registry.join(SOCKET);
    for round in 1..=2 {
        until_answered(&daemon, &socket).await;
        let before = identity(&socket);
        notify(&daemon, &socket, "plugin registration failed:\nno connection to the API").await;
        until("the socket is another", || async {
            identity(&socket).is_some_and(|now| Some(now) != before)
        })
        .await;
        let log = daemon.log();
        let reason = "plugin registration failed: no connection to the API";
        let said: Vec<_> = log.lines().filter(|line| line.contains(reason)).collect();
        assert_eq!(said.len(), round, "{log}");
        assert!(said.iter().all(|line| line.contains(" ERROR ")), "{said:?}");
    }
    until_answered(&daemon, &socket).await;
    daemon.terminate();
    assert_eq!(names_in(&registry), [""; 0]);
}

/// Its refusal is not lost among what it asks, and a lock on its directory holds up no other call.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_among_many_questions_is_heard() {
    needs_root!();
    let (pool, registry) = surroundings();
    let daemon = Launch::on(&pool).env("ORLOP_REGISTER", &registry).start().await;
    let socket = registry.join(SOCKET);
    until_answered(&daemon, &socket).await;
    let before = identity(&socket);
    let client = RegistrationClient::new(daemon.client_at(&socket).channel());
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..700 {
        let mut client = client.clone();
        asking.spawn(async move { client.get_info(InfoRequest {}).await.is_ok() });
    }
    notify(&daemon, &socket, "no").await;
    asking.join_all().await;
    until("the socket is another", || async {
        identity(&socket).is_some_and(|now| Some(now) != before)
    })
    .await;
}

/// The volumes of the node are served all the same.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_socket_is_waited_for() {
    needs_root!();
    let (pool, registry) = surroundings();
    let socket = registry.join(SOCKET);
    std::fs::write(&socket, "a file").unwrap();
    let launch = Launch::on(&pool).env("ORLOP_REGISTER", &registry);
    let checked = launch.clone().arg("--check").run_to_end();
    assert_eq!(checked.status.code(), Some(0), "{}", checked.output);
    assert!(checked.output.contains("warning: cannot register with kubelet: ORLOP_REGISTER"));
    let daemon = launch.start().await;
    until("logged", || async { daemon.log().contains("cannot register with kubelet") }).await;
    std::fs::remove_file(&socket).unwrap();
    until_answered(&daemon, &socket).await;
}

/// node-driver-registrar takes the same name.
#[tokio::test(flavor = "multi_thread")]
async fn the_name_of_another_registrar_is_waited_for() {
    needs_root!();
    let (pool, registry) = surroundings();
    let socket = registry.join(SOCKET);
    let other = UnixListener::bind(&socket).unwrap();
    let before = identity(&socket);
    let daemon = Launch::on(&pool).env("ORLOP_REGISTER", &registry).start().await;
    until("logged", || async { daemon.log().contains("cannot register with kubelet") }).await;
    assert_eq!(identity(&socket), before);
    drop(other);
    until_answered(&daemon, &socket).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_that_cannot_work_is_refused() {
    needs_root!();
    let (pool, registry) = surroundings();
    let with = |value: &Path| Launch::on(&pool).env("ORLOP_REGISTER", value);
    refused(&with(Path::new("registry")), "ORLOP_REGISTER");
    refused(&with(&registry).env("ORLOP_MODE", "controller"), "ORLOP_REGISTER");
    refused(&with(&registry.join("x".repeat(100))), "ORLOP_REGISTER");
    refused(&with(&pool.path), "ORLOP_REGISTER");
    refused(&with(&registry).env("ORLOP_KUBELET_ENDPOINT", "csi.sock"), "ORLOP_KUBELET_ENDPOINT");
    refused(
        &Launch::on(&pool).env("ORLOP_KUBELET_ENDPOINT", "/csi.sock"),
        "ORLOP_KUBELET_ENDPOINT",
    );
    // kubelet would take the CSI socket for one that registers a plugin.
    refused(&with(pool.scratch().path()), "CSI_ENDPOINT");
    let router = Launch::without_pool()
        .env("ORLOP_MODE", "router")
        .env("ORLOP_PEERS", "127.0.0.1:7420")
        .env("ORLOP_REGISTER", &registry);
    refused(&router, "ORLOP_REGISTER");
}
