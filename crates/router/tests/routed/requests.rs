//! What callers send.

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::controller_client::ControllerClient;
use orlop_router::Router;
use tonic::{Code, Status};

use crate::cluster::NODE_KEY;

pub(crate) const MIB: i64 = 1 << 20;

pub(crate) fn block() -> v1::VolumeCapability {
    use v1::volume_capability::{AccessMode, AccessType, BlockVolume, access_mode::Mode};
    v1::VolumeCapability {
        access_type: Some(AccessType::Block(BlockVolume {})),
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
    }
}

pub(crate) fn new_volume(name: &str) -> v1::CreateVolumeRequest {
    v1::CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(v1::CapacityRange { required_bytes: MIB, limit_bytes: 0 }),
        volume_capabilities: vec![block()],
        ..Default::default()
    }
}

pub(crate) fn at(node: &str) -> v1::Topology {
    v1::Topology { segments: [(NODE_KEY.to_owned(), node.to_owned())].into() }
}

pub(crate) fn new_volume_at(name: &str, nodes: &[&str]) -> v1::CreateVolumeRequest {
    let places: Vec<_> = nodes.iter().map(|node| at(node)).collect();
    v1::CreateVolumeRequest {
        accessibility_requirements: Some(v1::TopologyRequirement {
            requisite: places.clone(),
            preferred: places,
        }),
        ..new_volume(name)
    }
}

pub(crate) fn list() -> v1::ListVolumesRequest {
    v1::ListVolumesRequest::default()
}

pub(crate) async fn create(
    client: &mut ControllerClient<Router>,
    request: v1::CreateVolumeRequest,
) -> Result<v1::Volume, Status> {
    client.create_volume(request).await.map(|made| made.into_inner().volume.unwrap())
}

pub(crate) async fn delete(client: &mut ControllerClient<Router>, id: &str) -> Result<(), Status> {
    let request = v1::DeleteVolumeRequest { volume_id: id.to_owned(), ..Default::default() };
    client.delete_volume(request).await.map(drop)
}

#[track_caller]
pub(crate) fn expect<T>(answer: Result<T, Status>, code: Code) -> String {
    let Err(status) = answer else { panic!("it was answered OK") };
    assert_eq!(status.code(), code, "{status}");
    status.message().to_owned()
}
