//! Messages that no generated client would send.

use orlop_csi::proto::csi::v1;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use crate::plugin::{NO_VOLUME, Plugin, code};

async fn call<Message>(plugin: &Plugin, path: &'static str, message: Message) -> Result<(), Status>
where
    Message: prost::Message + Default + 'static,
{
    let mut grpc = tonic::client::Grpc::new(plugin.channel());
    grpc.ready().await.unwrap();
    let codec = ProstCodec::<Message, v1::ControllerGetVolumeResponse>::default();
    let path = PathAndQuery::from_static(path);
    grpc.unary(Request::new(message), path, codec).await.map(drop)
}

const GET_VOLUME: &str = "/csi.v1.Controller/ControllerGetVolume";

/// ControllerGetVolumeRequest of a later version.
#[derive(Clone, PartialEq, prost::Message)]
struct Extended {
    #[prost(string, tag = "1")]
    volume_id: String,
    #[prost(string, tag = "9999")]
    novelty: String,
}

#[tokio::test]
async fn unknown_fields_are_ignored() {
    let plugin = Plugin::start().await;
    let message = |volume_id: String| Extended { volume_id, novelty: "x".repeat(1000) };
    let known = plugin.volume("a").await.volume_id;
    assert_eq!(code(call(&plugin, GET_VOLUME, message(known)).await), Code::Ok, "GEN-39");
    let unknown = call(&plugin, GET_VOLUME, message(NO_VOLUME.to_owned())).await;
    assert_eq!(code(unknown), Code::NotFound);
}

#[derive(Clone, PartialEq, prost::Message)]
struct NotText {
    #[prost(bytes = "vec", tag = "1")]
    volume_id: Vec<u8>,
}

#[tokio::test]
async fn invalid_utf8_is_refused_and_the_plugin_survives() {
    let plugin = Plugin::start().await;
    let volume_id = vec![0xff, 0xfe];
    let answer = call(&plugin, GET_VOLUME, NotText { volume_id }).await;
    assert_ne!(code(answer), Code::Ok, "GEN-32");
    plugin.volume("a").await;
}

#[tokio::test]
async fn unknown_methods_are_unimplemented_with_a_message() {
    let plugin = Plugin::start().await;
    for path in [
        "/csi.v1.Controller/NoSuchMethod",
        "/csi.v0.Node/NodeGetInfo",
        "/csi.v1.SnapshotMetadata/GetMetadata",
        "/no.such.Service/Method",
    ] {
        let answer = call(&plugin, path, Extended::default()).await;
        assert_eq!(code(answer), Code::Unimplemented, "{path}");
    }
}
