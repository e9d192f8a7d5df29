//! The trace of a caller, by the W3C header `traceparent`, stands in every line of its call.

use orlop_tests::*;
use serde_json::Value;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const HEADER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// As an orchestrator sends a request that it traces.
pub(crate) fn traced<M>(message: M, header: &str) -> tonic::Request<M> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("traceparent", header.parse().unwrap());
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn every_line_of_a_call_has_its_trace() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let launch = Launch::on(&pool).env("ORLOP_LOG_FORMAT", "json").env("ORLOP_LOG", "trace");
    let mut daemon = launch.start().await;
    let client = daemon.client();
    let volume = client.create("v").size(64 * MIB).fs("ext4").done().await;
    let node = client.on_node(&volume, mount("ext4"));
    client.node().node_stage_volume(traced(node.stage_request(), HEADER)).await.unwrap();
    let mut wrong = node.publish_request();
    wrong.staging_target_path = String::new();
    client.node().node_publish_volume(traced(wrong, HEADER)).await.unwrap_err();
    node.unstage().await.unwrap();
    daemon.terminate();

    let log = daemon.log();
    let entries: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for method in ["NodeStageVolume", "NodePublishVolume", "NodeUnstageVolume"] {
        let of_call: Vec<_> =
            entries.iter().filter(|entry| entry["span"]["method"] == method).collect();
        assert!(of_call.iter().any(|entry| entry["fields"]["code"].is_string()), "{method}");
        for entry in of_call {
            let expected = match method {
                "NodeUnstageVolume" => Value::Null,
                _ => Value::from(TRACE),
            };
            assert_eq!(entry["span"]["trace_id"], expected, "{entry}");
        }
    }
    // Also what is written on another thread, far below.
    let below = entries.iter().filter(|entry| {
        entry["span"]["trace_id"] == TRACE
            && entry["target"].as_str().is_some_and(|target| !target.starts_with("orlop_csi"))
    });
    assert!(below.count() > 0, "no line below the edge has the trace");
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_trace_is_ignored() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    for header in ["nonsense", "00-0-0-01", &HEADER.to_uppercase(), &HEADER.replace("00-", "ff-")] {
        let request = traced(v1::GetPluginInfoRequest {}, header);
        client.identity().get_plugin_info(request).await.unwrap();
    }
    daemon.terminate();
    assert!(!daemon.log().contains("trace_id"), "{}", daemon.log_end());
}
