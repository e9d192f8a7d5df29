//! A call's trace goes on with it from the router to the daemons that it calls.

use orlop_tests::*;

use crate::daemon::traces::traced;
use crate::router::cluster::{Cluster, at};

fn trace(number: u8) -> String {
    format!("{:032x}", 0xabc0 + u64::from(number))
}

fn header(number: u8) -> String {
    format!("00-{}-00f067aa0ba902b7-01", trace(number))
}

#[tokio::test(flavor = "multi_thread")]
async fn trace_goes_on_to_the_peers() {
    needs_root!();
    let cluster = Cluster::start(PoolFs::Xfs).await;
    let client = cluster.client();
    let mut ids = Vec::new();
    for (number, node) in (1..).zip(&cluster.nodes) {
        let create = client.create(&format!("v{number}")).size(16 * MIB).block();
        let mut request = create.request.clone();
        request.accessibility_requirements = Some(at(node.name));
        let made =
            client.controller().create_volume(traced(request, &header(number))).await.unwrap();
        ids.push(made.into_inner().volume.unwrap().volume_id);
        let line = format!("trace_id=\"{}\"", trace(number));
        assert!(cluster.router.has_logged(&line), "{}", cluster.router.log_end());
        assert!(node.daemon.has_logged(&line), "{}", node.daemon.log_end());
    }
    // A call that the router makes itself, to both of them.
    let request = v1::CreateVolumeGroupSnapshotRequest {
        name: "group".to_owned(),
        source_volume_ids: ids,
        ..Default::default()
    };
    client
        .group_controller()
        .create_volume_group_snapshot(traced(request, &header(9)))
        .await
        .unwrap();
    for node in &cluster.nodes {
        let line = format!("trace_id=\"{}\"", trace(9));
        let begins = |log: String| {
            log.lines().any(|it| it.contains(&line) && it.contains("method=\"TakeGroupPart\""))
        };
        assert!(node.daemon.has_logged(&line), "{}", node.daemon.log_end());
        assert!(begins(node.daemon.log()), "{}", node.daemon.log_end());
    }
}
