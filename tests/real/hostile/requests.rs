//! Requests of every kind there is, made from their descriptors, so that a new one is not forgotten.

use std::collections::HashMap;

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

pub(crate) fn descriptors() -> DescriptorPool {
    DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap()
}

pub(crate) fn methods(descriptors: &DescriptorPool) -> impl Iterator<Item = MethodDescriptor> {
    descriptors.services().flat_map(|service| service.methods().collect::<Vec<_>>())
}

/// Objects that requests may name.
pub(crate) struct Known {
    capability: v1::VolumeCapability,
    size: u64,
    volume: String,
    snapshot: String,
    group_snapshot: String,
    group_members: Vec<Value>,
    volume_group: String,
    staging: String,
    target: String,
}

impl Known {
    /// A volume of this name, and all that can be made of it under the same name.
    pub(crate) async fn make(
        client: &Client,
        name: &str,
        size: u64,
        capability: v1::VolumeCapability,
    ) -> (Self, OnNode) {
        let volume = client.create(name).size(size).capability(capability.clone()).done().await;
        let node = client.on_node(&volume, capability.clone());
        let snapshot = client.snapshot(name, &node.id).await.unwrap().snapshot_id;
        let request = v1::CreateVolumeGroupSnapshotRequest {
            name: name.to_owned(),
            source_volume_ids: vec![node.id.clone()],
            ..v1::CreateVolumeGroupSnapshotRequest::default()
        };
        let made = client.group_controller().create_volume_group_snapshot(request).await.unwrap();
        let group = made.into_inner().group_snapshot.unwrap();
        let members = group.snapshots.into_iter().map(|member| Value::String(member.snapshot_id));
        let request = volumegroup::CreateVolumeGroupRequest {
            name: name.to_owned(),
            ..volumegroup::CreateVolumeGroupRequest::default()
        };
        let mut groups = volumegroup::controller_client::ControllerClient::new(client.channel());
        let made = groups.create_volume_group(request).await.unwrap().into_inner();
        let known = Self {
            capability,
            size,
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
    pub(crate) fn value(
        &self,
        method: &MethodDescriptor,
        field: &FieldDescriptor,
    ) -> Option<Value> {
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
            "target_path" | "volume_path" | "volume_publish_path" => text(&self.target),
            "volume_capability" => Some(message(field, &self.capability)),
            "volume_capabilities" => Some(Value::List(vec![message(field, &self.capability)])),
            "capacity_range" => {
                let range = v1::CapacityRange { required_bytes: int(self.size), limit_bytes: 0 };
                Some(message(field, &range))
            }
            "mutable_parameters" if method.name().contains("Modify") => {
                Some(map(&[("readIops", "max")]))
            }
            _ => None,
        }
    }
}

/// The packages have the same messages under other names.
fn message(field: &FieldDescriptor, message: &impl Message) -> Value {
    let kind = field.kind();
    let descriptor = kind.as_message().expect("a message").clone();
    let bytes = message.encode_to_vec();
    Value::Message(DynamicMessage::decode(descriptor, bytes.as_slice()).unwrap())
}

pub(crate) fn map(entries: &[(&str, &str)]) -> Value {
    let owned = |(key, value): &(&str, &str)| {
        (MapKey::String((*key).to_owned()), Value::String((*value).to_owned()))
    };
    Value::Map(entries.iter().map(owned).collect::<HashMap<_, _>>())
}

/// What is answered, all messages of a stream together.
pub(crate) async fn call(
    client: &Client,
    method: &MethodDescriptor,
    request: Vec<u8>,
) -> Answer<Vec<u8>> {
    let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
    let mut grpc = Grpc::new(client.channel());
    grpc.ready().await.map_err(|error| Status::unknown(error.to_string()))?;
    let path = path.parse().unwrap();
    let answer = grpc.server_streaming(Request::new(request), path, Unread).await?;
    let mut replies = Vec::new();
    let mut messages = answer.into_inner();
    while let Some(message) = messages.message().await? {
        replies.extend(message);
    }
    Ok(replies)
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
