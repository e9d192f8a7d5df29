//! Volumes on a Ceph cluster: controllers and nodes are separate processes, each in a separate
//! directory, as if each had a machine to itself.

mod data;
mod exports;
mod fencing;
mod full;
mod groups;
mod growing;
mod hung_unmount;
mod inline;
mod interrupted;
mod kill_under_load;
mod killing;
mod moving;
mod namespaces;
mod nodes;
mod older_records;
mod orphans;
mod outage;
mod racing;
mod sharing;
mod unreachable;
mod unrecorded;
mod wrong_pool;

use std::time::{Duration, Instant};

use orlop_tests::*;

pub(crate) const VOLUME: u64 = 320 * MIB;

/// Published to the node by the controller, staged and published there.
pub(crate) async fn up_on(
    controller: &Client,
    node: &Daemon,
    name: &str,
    volume: &v1::Volume,
    capability: v1::VolumeCapability,
) -> OnNode {
    let mut used = node.client().on_node(volume, capability.clone());
    let published = controller.controller_publish(&used.id, name, capability, false).await;
    used.publish_context = published.unwrap();
    used.up().await;
    used
}

/// Taken from the node in good order.
pub(crate) async fn down_from(controller: &Client, name: &str, used: &OnNode) {
    used.down().await;
    controller.controller_unpublish(&used.id, name).await.unwrap();
}

/// Far more than a cluster needs to agree again; reached only by one that does not.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Until it succeeds; what may pass by itself is asked again, as orchestrators do, and so is what
/// a daemon that was killed did not answer.
pub(crate) async fn persist<T, F: Future<Output = Answer<T>>>(call: impl Fn() -> F) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(status) => {
                let passing = [Code::Unavailable, Code::Aborted, Code::DeadlineExceeded];
                let lost = is_connection_lost(&status);
                assert!(lost || passing.contains(&status.code()), "{status}");
                assert!(Instant::now() < deadline, "{status}");
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Deletion waits for clients that are just going away.
pub(crate) async fn delete(controller: &Client, volume: &str) {
    controller.delete(volume).await.unwrap();
}
