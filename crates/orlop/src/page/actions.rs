//! The changes that the page can make. Each is a CSI call on the daemon's own socket, so it is parsed, limited, logged,
//! counted and routed like a call of an orchestrator.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::controller_client::ControllerClient;
use orlop_csi::self_check;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::{Answered, JSON, Page, Refusal, json, whole};

const TOKEN: &str = "/api/token";
const SNAPSHOTS: &str = "/api/snapshots";
const LIMITS: &str = "/api/limits";
pub(super) const PATHS: [&str; 3] = [TOKEN, SNAPSHOTS, LIMITS];

/// Shorter than the timeout of the connection. A snapshot that has to copy the data may take longer, and is completed
/// after the answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Far below gRPC's limit of 4 MiB for a message.
const SNAPSHOTS_PER_LIST: i32 = 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewSnapshot {
    volume: String,
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewLimits {
    volume: String,
    /// As the mutable parameters of a volume; 0 lifts a limit.
    limits: BTreeMap<String, u64>,
}

impl Page {
    pub(super) async fn act(&self, path: &str, body: &[u8]) -> Answered {
        match path {
            SNAPSHOTS => self.take_snapshot(parsed(body)?).await,
            LIMITS => self.change_limits(parsed(body)?).await,
            // TOKEN: it was checked before this.
            _ => Ok(done(StatusCode::NO_CONTENT)),
        }
    }

    async fn take_snapshot(&self, requested: NewSnapshot) -> Answered {
        let NewSnapshot { volume, name } = requested;
        tracing::info!(volume = %orlop_model::id::shown(&volume), "taking a snapshot that was requested on the page");
        let name_given = name.clone();
        let call = |channel: Channel| async move {
            taken(ControllerClient::new(channel), volume, name).await
        };
        let Some(Taken { id, is_new }) = self.call_within_timeout(call).await? else {
            return Ok(done(StatusCode::ACCEPTED));
        };
        if !is_new {
            let why = format!(
                "snapshot {name_given} of this volume exists already, and nothing was done; give the new one \
                 another name"
            );
            return Err(Refusal::new(StatusCode::CONFLICT, why));
        }
        let mut answer = whole(JSON, json(&serde_json::json!({ "snapshot": id }))?);
        *answer.status_mut() = StatusCode::CREATED;
        Ok(answer)
    }

    async fn change_limits(&self, requested: NewLimits) -> Answered {
        let NewLimits { volume, limits } = requested;
        tracing::info!(volume = %orlop_model::id::shown(&volume), "changing I/O limits as requested on the page");
        let mutable_parameters =
            limits.into_iter().map(|(key, value)| (key, value.to_string())).collect();
        let request = v1::ControllerModifyVolumeRequest {
            volume_id: volume,
            mutable_parameters,
            ..Default::default()
        };
        let call = |channel: Channel| async move {
            ControllerClient::new(channel).controller_modify_volume(request).await
        };
        match self.call_within_timeout(call).await? {
            Some(_) => Ok(done(StatusCode::NO_CONTENT)),
            None => Ok(done(StatusCode::ACCEPTED)),
        }
    }

    /// `None`: the call is still running.
    async fn call_within_timeout<T, F: Future<Output = Result<T, Status>>>(
        &self,
        call: impl FnOnce(Channel) -> F,
    ) -> Result<Option<T>, Refusal> {
        let calling = async {
            let channel = self_check::connect(&self.csi).await;
            let failed = |error: self_check::SelfCheckError| {
                Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
            };
            call(channel.map_err(failed)?).await.map_err(|status| status_refusal(&status))
        };
        match timeout(CALL_TIMEOUT, calling).await {
            Ok(answered) => answered.map(Some),
            Err(_) => Ok(None),
        }
    }
}

struct Taken {
    id: String,
    /// `false`: there was one of this name, which CSI answers with as if it had been taken now.
    is_new: bool,
}

async fn taken(
    mut client: ControllerClient<Channel>,
    volume: String,
    name: String,
) -> Result<Taken, Status> {
    let mut before = Vec::new();
    let mut listing = v1::ListSnapshotsRequest {
        source_volume_id: volume.clone(),
        max_entries: SNAPSHOTS_PER_LIST,
        ..Default::default()
    };
    loop {
        let listed = client.list_snapshots(listing.clone()).await?.into_inner();
        let snapshots = listed.entries.into_iter().filter_map(|entry| entry.snapshot);
        before.extend(snapshots.map(|snapshot| snapshot.snapshot_id));
        if listed.next_token.is_empty() {
            break;
        }
        listing.starting_token = listed.next_token;
    }
    let request =
        v1::CreateSnapshotRequest { source_volume_id: volume, name, ..Default::default() };
    let snapshot = client.create_snapshot(request).await?.into_inner().snapshot;
    let id = snapshot.map(|snapshot| snapshot.snapshot_id).unwrap_or_default();
    Ok(Taken { is_new: !before.contains(&id), id })
}

fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| {
        let why = format!("the body is not what docs/page.md describes: {error}");
        Refusal::new(StatusCode::BAD_REQUEST, why)
    })
}

fn done(status: StatusCode) -> Response<Full<Bytes>> {
    let mut answer = whole(JSON, Bytes::new());
    *answer.status_mut() = status;
    answer
}

pub(super) fn status_refusal(status: &Status) -> Refusal {
    let code = match status.code() {
        Code::InvalidArgument | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::FailedPrecondition | Code::Aborted => StatusCode::CONFLICT,
        Code::ResourceExhausted => StatusCode::INSUFFICIENT_STORAGE,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable | Code::DeadlineExceeded => StatusCode::SERVICE_UNAVAILABLE,
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::PermissionDenied
        | Code::Internal
        | Code::DataLoss
        | Code::Unauthenticated => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Refusal::new(code, status.message())
}
