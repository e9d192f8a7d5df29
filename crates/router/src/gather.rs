//! Lists of what all daemons have, in the order of ids. The page token is the last id, so a page continues where the one
//! before ended, also if daemons came or went in between.

use std::collections::BTreeMap;

use orlop_csi::proto::csi::{v0, v1};
use orlop_csi::proto::volumegroup;
use prost::Message;
use tokio::task::JoinSet;
use tonic::body::Body;
use tonic::codegen::http::Response;
use tonic::{Code, Status};

use crate::members::Members;
use crate::message::{Call, reply};
use crate::peers::PEER_TIMEOUT;
use crate::router::{Controller, Router};
use crate::target::Target;

/// A list of a hundred thousand volumes has some 50 MiB.
const LARGEST_LIST: usize = 256 << 20;

impl Router {
    pub(crate) async fn gather(
        &self,
        members: &Members,
        call: &Call,
    ) -> Result<Response<Body>, Status> {
        let is_list = call.path().contains("List");
        // The semaphore is never closed, so this does not fail.
        let _permit = if is_list { self.lists().acquire().await.ok() } else { None };
        match call.path() {
            "/csi.v1.Controller/ListVolumes" => list_volumes(members, call).await,
            "/csi.v1.Controller/ListSnapshots" => list_snapshots(members, call).await,
            "/csi.v1.Controller/ControllerListVolumeHealth" => list_health(members, call).await,
            "/csi.v1.Controller/GetCapacity" => self.capacity(members, call).await,
            "/csi.v1.Controller/ControllerGetCapabilities" => capabilities(members, call).await,
            "/csi.v0.Controller/ListVolumes" => list_v0_volumes(members, call).await,
            "/csi.v0.Controller/GetCapacity" => self.v0_capacity(members, call).await,
            "/volumegroup.Controller/ListVolumeGroups" => list_groups(members, call).await,
            _ => self.here().forward(call.request()).await,
        }
    }

    pub(crate) fn here(&self) -> Target {
        self.peers().here()
    }
}

/// The message of a call. Routing has parsed it before, so a malformed message does not get here.
pub(crate) fn decoded<M: Message + Default>(call: &Call) -> Result<M, Status> {
    M::decode(call.message()).map_err(|error| Status::internal(error.to_string()))
}

/// Calls all targets at once. Returns the replies of all, or the first error.
pub(crate) async fn call_each<Reply, Calling>(
    targets: impl IntoIterator<Item = Target>,
    mut call: impl FnMut(Target) -> Calling,
) -> Result<Vec<Reply>, Status>
where
    Reply: Send + 'static,
    Calling: Future<Output = Result<tonic::Response<Reply>, Status>> + Send + 'static,
{
    let mut calls = JoinSet::new();
    for target in targets {
        calls.spawn(call(target));
    }
    let mut replies = Vec::new();
    while let Some(answer) = calls.join_next().await {
        let answer =
            answer.map_err(|error| Status::internal(format!("cannot call a peer: {error}")))?;
        replies.push(answer?.into_inner());
    }
    Ok(replies)
}

fn reachable(members: &Members) -> Vec<Target> {
    members.reachable().map(|member| member.target.clone()).collect()
}

/// One page, merged from a page of each daemon.
struct MergedPage<Entry> {
    entries: BTreeMap<String, Entry>,
    has_more: bool,
}

impl<Entry> MergedPage<Entry> {
    fn new() -> Self {
        Self { entries: BTreeMap::new(), has_more: false }
    }

    /// Daemons that share a pool have the same entries, which are added once.
    fn add(&mut self, entries: impl IntoIterator<Item = (String, Entry)>, next_token: &str) {
        self.entries.extend(entries);
        self.has_more |= !next_token.is_empty();
    }

    fn limited_to(mut self, max_entries: i32) -> (Vec<Entry>, String) {
        let max = usize::try_from(max_entries).unwrap_or(0);
        while max > 0 && self.entries.len() > max {
            self.entries.pop_last();
            self.has_more = true;
        }
        let last = self.entries.last_key_value().map(|(id, _)| id.clone());
        let next = last.filter(|_| self.has_more).unwrap_or_default();
        (self.entries.into_values().collect(), next)
    }
}

async fn list_volumes(members: &Members, call: &Call) -> Result<Response<Body>, Status> {
    members.require_all("list all volumes")?;
    let request: v1::ListVolumesRequest = decoded(call)?;
    let replies = call_each(reachable(members), |target| {
        let request = call.beside(request.clone());
        let mut client = Controller::new(target).max_decoding_message_size(LARGEST_LIST);
        async move { client.list_volumes(request).await }
    });
    let mut page = MergedPage::new();
    for reply in replies.await? {
        let id = |entry: &v1::list_volumes_response::Entry| {
            entry.volume.as_ref().map(|volume| volume.volume_id.clone()).unwrap_or_default()
        };
        page.add(reply.entries.into_iter().map(|entry| (id(&entry), entry)), &reply.next_token);
    }
    let (entries, next_token) = page.limited_to(request.max_entries);
    Ok(reply(&v1::ListVolumesResponse { entries, next_token }))
}

/// As for a list of volumes, all daemons are required: a volume that is missing would be taken for healthy.
async fn list_health(members: &Members, call: &Call) -> Result<Response<Body>, Status> {
    members.require_all("list the health of all volumes")?;
    let request: v1::ControllerListVolumeHealthRequest = decoded(call)?;
    let replies = call_each(reachable(members), |target| {
        let request = call.beside(request.clone());
        let mut client = Controller::new(target).max_decoding_message_size(LARGEST_LIST);
        async move { client.controller_list_volume_health(request).await }
    });
    let mut page = MergedPage::new();
    for reply in replies.await? {
        let id = |entry: &v1::VolumeHealth| entry.volume_id.clone();
        page.add(reply.entries.into_iter().map(|entry| (id(&entry), entry)), &reply.next_token);
    }
    let (entries, next_token) = page.limited_to(request.max_entries);
    Ok(reply(&v1::ControllerListVolumeHealthResponse { entries, next_token }))
}

async fn list_v0_volumes(members: &Members, call: &Call) -> Result<Response<Body>, Status> {
    members.require_all("list all volumes")?;
    let request: v0::ListVolumesRequest = decoded(call)?;
    let replies = call_each(reachable(members), |target| {
        let request = call.beside(request.clone());
        let client = v0::controller_client::ControllerClient::new(target);
        let mut client = client.max_decoding_message_size(LARGEST_LIST);
        async move { client.list_volumes(request).await }
    });
    let mut page = MergedPage::new();
    for reply in replies.await? {
        let id = |entry: &v0::list_volumes_response::Entry| {
            entry.volume.as_ref().map(|volume| volume.id.clone()).unwrap_or_default()
        };
        page.add(reply.entries.into_iter().map(|entry| (id(&entry), entry)), &reply.next_token);
    }
    let (entries, next_token) = page.limited_to(request.max_entries);
    Ok(reply(&v0::ListVolumesResponse { entries, next_token }))
}

async fn list_snapshots(members: &Members, call: &Call) -> Result<Response<Body>, Status> {
    members.require_all("list all snapshots")?;
    let request: v1::ListSnapshotsRequest = decoded(call)?;
    let replies = call_each(reachable(members), |target| {
        let request = call.beside(request.clone());
        let mut client = Controller::new(target).max_decoding_message_size(LARGEST_LIST);
        async move { client.list_snapshots(request).await }
    });
    let mut page = MergedPage::new();
    for reply in replies.await? {
        let id = |entry: &v1::list_snapshots_response::Entry| {
            entry.snapshot.as_ref().map(|snapshot| snapshot.snapshot_id.clone()).unwrap_or_default()
        };
        page.add(reply.entries.into_iter().map(|entry| (id(&entry), entry)), &reply.next_token);
    }
    let (entries, next_token) = page.limited_to(request.max_entries);
    Ok(reply(&v1::ListSnapshotsResponse { entries, next_token }))
}

async fn list_groups(members: &Members, call: &Call) -> Result<Response<Body>, Status> {
    members.require_all("list all volume groups")?;
    let request: volumegroup::ListVolumeGroupsRequest = decoded(call)?;
    let replies = call_each(reachable(members), |target| {
        let request = call.beside(request.clone());
        let client = volumegroup::controller_client::ControllerClient::new(target);
        let mut client = client.max_decoding_message_size(LARGEST_LIST);
        async move { client.list_volume_groups(request).await }
    });
    let mut page = MergedPage::new();
    for reply in replies.await? {
        let id = |entry: &volumegroup::list_volume_groups_response::Entry| {
            entry
                .volume_group
                .as_ref()
                .map(|group| group.volume_group_id.clone())
                .unwrap_or_default()
        };
        page.add(reply.entries.into_iter().map(|entry| (id(&entry), entry)), &reply.next_token);
    }
    let (entries, next_token) = page.limited_to(request.max_entries);
    Ok(reply(&volumegroup::ListVolumeGroupsResponse { entries, next_token }))
}

/// The capabilities that all daemons with pools that answer have in common (CC-02).
async fn capabilities(members: &Members, call: &Call) -> Result<Response<Body>, Status> {
    let request: v1::ControllerGetCapabilitiesRequest = decoded(call)?;
    let with_pools = members.reachable().filter(|member| !member.pools.is_empty());
    let mut targets: Vec<Target> = with_pools.map(|member| member.target.clone()).collect();
    if targets.is_empty() {
        targets.extend(members.all.first().map(|this| this.target.clone()));
    }
    let mut asking = JoinSet::new();
    for target in targets {
        let request = call.beside(request);
        asking.spawn(async move {
            let mut client = Controller::new(target);
            tokio::time::timeout(PEER_TIMEOUT, client.controller_get_capabilities(request)).await
        });
    }
    let mut common: Option<Vec<v1::ControllerServiceCapability>> = None;
    while let Some(answer) = asking.join_next().await {
        let offered = match answer {
            Ok(Ok(Ok(reply))) => reply.into_inner().capabilities,
            Ok(Ok(Err(status))) if status.code() != Code::Unavailable => return Err(status),
            Ok(Ok(Err(_)) | Err(_)) | Err(_) => continue,
        };
        match &mut common {
            Some(common) => common.retain(|capability| offered.contains(capability)),
            None => common = Some(offered),
        }
    }
    let unknown = || {
        Status::unavailable("cannot tell what the nodes can do: none of them answers; try again")
    };
    Ok(reply(&v1::ControllerGetCapabilitiesResponse { capabilities: common.ok_or_else(unknown)? }))
}
