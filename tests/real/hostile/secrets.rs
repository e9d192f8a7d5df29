//! A canary in every field that may hold a secret, of every request that has one. Which those are
//! is read from the descriptors, so that a new one is not forgotten.

use std::collections::HashMap;
use std::path::PathBuf;

use orlop_csi::proto::FILE_DESCRIPTOR_SET;
use orlop_tests::*;
use prost::Message;
use prost::bytes::{Buf, BufMut};
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, MapKey, MethodDescriptor, Value,
};
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Request, Status};

const CANARY: &str = "canary-51f3a9-sings";

/// Objects that requests may name.
struct Known {
    volume: String,
    snapshot: String,
    group_snapshot: String,
    group_members: Vec<Value>,
    volume_group: String,
    staging: String,
    target: String,
}

impl Known {
    async fn make(client: &Client) -> (Self, OnNode) {
        let volume = client.create("v").size(64 * MIB).fs("ext4").done().await;
        let node = client.on_node(&volume, mount("ext4"));
        let snapshot = client.snapshot("s", &node.id).await.unwrap().snapshot_id;
        let request = v1::CreateVolumeGroupSnapshotRequest {
            name: "g".to_owned(),
            source_volume_ids: vec![node.id.clone()],
            ..v1::CreateVolumeGroupSnapshotRequest::default()
        };
        let made = client.group_controller().create_volume_group_snapshot(request).await.unwrap();
        let group = made.into_inner().group_snapshot.unwrap();
        let members = group.snapshots.into_iter().map(|member| Value::String(member.snapshot_id));
        let request = volumegroup::CreateVolumeGroupRequest {
            name: "vg".to_owned(),
            ..volumegroup::CreateVolumeGroupRequest::default()
        };
        let mut groups = volumegroup::controller_client::ControllerClient::new(client.channel());
        let made = groups.create_volume_group(request).await.unwrap().into_inner();
        let known = Self {
            volume: node.id.clone(),
            snapshot,
            group_snapshot: group.group_snapshot_id,
            group_members: members.collect(),
            volume_group: made.volume_group.unwrap().volume_group_id,
            staging: node.staging.to_str().unwrap().to_owned(),
            target: node.target.to_str().unwrap().to_owned(),
        };
        (known, node)
    }

    /// What a caller would put there; `None` leaves it open.
    fn value(&self, method: &MethodDescriptor, field: &FieldDescriptor) -> Option<Value> {
        let text = |text: &str| Some(Value::String(text.to_owned()));
        match field.name() {
            "name" => text(&format!("made by {}", method.full_name())),
            "volume_id" | "source_volume_id" => text(&self.volume),
            "volume_ids" | "source_volume_ids" => {
                Some(Value::List(vec![Value::String(self.volume.clone())]))
            }
            "snapshot_id" | "base_snapshot_id" | "target_snapshot_id" => text(&self.snapshot),
            "snapshot_ids" => Some(Value::List(self.group_members.clone())),
            "group_snapshot_id" => text(&self.group_snapshot),
            "volume_group_id" => text(&self.volume_group),
            "node_id" => text("test-node"),
            "staging_target_path" => text(&self.staging),
            "target_path" | "volume_path" => text(&self.target),
            "volume_capability" => Some(capability(field)),
            "volume_capabilities" => Some(Value::List(vec![capability(field)])),
            "capacity_range" => {
                let range = v1::CapacityRange { required_bytes: int(64 * MIB), limit_bytes: 0 };
                Some(message(field, &range))
            }
            "mutable_parameters" if method.name().contains("Modify") => {
                Some(map(&[("readIops", "max")]))
            }
            _ => None,
        }
    }
}

fn capability(field: &FieldDescriptor) -> Value {
    message(field, &mount("ext4"))
}

/// The packages have the same messages under other names.
fn message(field: &FieldDescriptor, message: &impl Message) -> Value {
    let kind = field.kind();
    let descriptor = kind.as_message().expect("a message").clone();
    let bytes = message.encode_to_vec();
    Value::Message(DynamicMessage::decode(descriptor, bytes.as_slice()).unwrap())
}

fn map(entries: &[(&str, &str)]) -> Value {
    let owned = |(key, value): &(&str, &str)| {
        (MapKey::String((*key).to_owned()), Value::String((*value).to_owned()))
    };
    Value::Map(entries.iter().map(owned).collect::<HashMap<_, _>>())
}

fn is_secret(descriptors: &DescriptorPool, field: &FieldDescriptor) -> bool {
    let option = descriptors.get_extension_by_name("csi.v1.csi_secret").unwrap();
    field.options().get_extension(&option).as_bool() == Some(true)
        || field.name().ends_with("secrets")
}

/// With what takes away at the end.
fn methods_with_secrets(descriptors: &DescriptorPool) -> Vec<MethodDescriptor> {
    let mut found: Vec<MethodDescriptor> = descriptors
        .services()
        .flat_map(|service| service.methods().collect::<Vec<_>>())
        .filter(|method| method.input().fields().any(|field| is_secret(descriptors, &field)))
        .collect();
    let rank = |name: &str| match name {
        _ if name.starts_with("Delete") => 3,
        _ if name.contains("Unpublish") || name.contains("Unstage") => 2,
        _ if name.contains("NodePublish") || name.contains("NodeExpand") => 1,
        _ => 0,
    };
    found.sort_by_key(|method| rank(method.name()));
    found
}

fn request(
    descriptors: &DescriptorPool,
    method: &MethodDescriptor,
    known: &Known,
    secrets: &[(&str, &str)],
) -> Vec<u8> {
    let mut request = DynamicMessage::new(method.input());
    for field in method.input().fields() {
        if is_secret(descriptors, &field) {
            request.set_field(&field, map(secrets));
        } else if let Some(value) = known.value(method, &field) {
            request.set_field(&field, value);
        }
    }
    request.encode_to_vec()
}

async fn call(client: &Client, method: &MethodDescriptor, request: Vec<u8>) -> Answer<Vec<u8>> {
    let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
    let mut grpc = Grpc::new(client.channel());
    grpc.ready().await.map_err(|error| Status::unknown(error.to_string()))?;
    let path = path.parse().unwrap();
    let answer = grpc.server_streaming(Request::new(request), path, Unread).await?;
    let mut told = Vec::new();
    let mut messages = answer.into_inner();
    while let Some(message) = messages.message().await? {
        told.extend(message);
    }
    Ok(told)
}

fn sings(bytes: &[u8]) -> bool {
    bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_of_any_request_is_ever_told() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Launch::on(&pool).env("ORLOP_LOG", "trace").start().await;
    let client = daemon.client();
    let descriptors = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap();
    let (known, node) = Known::make(&client).await;
    let spy = Spy::on(daemon.pid());
    let methods = methods_with_secrets(&descriptors);
    let (mut done, mut refused) = (0, Vec::new());
    for method in &methods {
        // As meant, and with the value where the key should be.
        let meant = request(&descriptors, method, &known, &[("token", CANARY)]);
        match call(&client, method, meant).await {
            Ok(told) => {
                assert!(!sings(&told), "{}", method.full_name());
                done += 1;
            }
            Err(status) => {
                assert!(!sings(status.message().as_bytes()), "{status}");
                refused.push(format!("{}: {status}", method.full_name()));
            }
        }
        let misplaced = format!("{CANARY} is no key");
        let misplaced = request(&descriptors, method, &known, &[(&misplaced, "x")]);
        let status = expect_code(call(&client, method, misplaced).await, Code::InvalidArgument);
        assert!(!sings(status.message().as_bytes()), "{status}");
    }
    report(&format!("{} requests have secrets; {done} of them were done", methods.len()));
    assert!(done * 3 > methods.len() * 2, "most are done: {refused:#?}");

    let run_dir = pool.scratch().join("run");
    let found = files_that_hold(&[pool.path.as_path(), run_dir.as_path()], CANARY);
    assert_eq!(found, [] as [PathBuf; 0]);
    for line in spy.seen() {
        assert!(!line.contains(CANARY), "{line}");
    }
    node.unpublish().await.unwrap();
    node.unstage().await.unwrap();
    daemon.terminate();
    let log = daemon.log();
    assert!(log.contains("TRACE"), "the most talkative log");
    let telling: Vec<_> = log.lines().filter(|line| line.contains(CANARY)).collect();
    assert_eq!(telling, [""; 0]);
}

/// Messages as bytes.
#[derive(Clone, Copy)]
struct Unread;

impl Codec for Unread {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Unread {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, message: Vec<u8>, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put_slice(&message);
        Ok(())
    }
}

impl Decoder for Unread {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut message = vec![0; from.remaining()];
        from.copy_to_slice(&mut message);
        Ok(Some(message))
    }
}
