//! The services: each call is parsed, run on the engine, and answered.

mod addons;
mod controller;
mod group_controller;
mod identity;
mod monitor;
mod node;
mod peer;
mod registration;
mod snapshot_metadata;
mod v0;

use std::fmt::Display;

use orlop_model::{Error, Reason, Result};
use tonic::{Response, Status};
use tracing::Span;

pub(crate) use addons::{AddonsIdentity, KeyRotation, ReclaimSpace, VolumeGroups};
pub(crate) use controller::Controller;
pub(crate) use group_controller::GroupController;
pub(crate) use identity::Identity;
pub(crate) use monitor::Monitor;
pub(crate) use node::Node;
pub(crate) use peer::Peer;
pub(crate) use registration::Registration;
pub use registration::{KubeletCall, RegisteredPlugin};
pub(crate) use snapshot_metadata::SnapshotMetadata;
pub(crate) use v0::{V0Controller, V0Identity, V0Node};

use crate::executor::Executor;
use crate::status;

/// Implements the unary calls of a service trait. Each calls the type's inherent method of the same name,
/// which takes the message and returns the reply; those of the second block return a `Response`, which
/// carries metadata as well.
macro_rules! unary_calls {
    (impl $service:path, for $type:ty, with $messages:ident {
        $($method:ident($request:ident) -> $reply:ident;)*
    } $(and metadata {
        $($whole:ident($whole_request:ident) -> $whole_reply:ident;)*
    })?) => {
        #[tonic::async_trait]
        impl $service for $type {
            $(async fn $method(
                &self,
                request: tonic::Request<$messages::$request>,
            ) -> $crate::services::Answer<$messages::$reply> {
                $crate::services::answer(self.$method(request.into_inner()).await)
            })*
            $($(async fn $whole(
                &self,
                request: tonic::Request<$messages::$whole_request>,
            ) -> $crate::services::Answer<$messages::$whole_reply> {
                $crate::services::answer_with_metadata(self.$whole(request.into_inner()).await)
            })*)?
        }
    };
}
use unary_calls;

type Answer<Reply> = std::result::Result<Response<Reply>, Status>;

fn answer<Reply>(outcome: Result<Reply>) -> Answer<Reply> {
    answer_with_metadata(outcome.map(Response::new))
}

fn answer_with_metadata<Reply>(outcome: Result<Response<Reply>>) -> Answer<Reply> {
    outcome.map_err(|error| status::from_error(&error))
}

/// The answer to every kind of Probe: ready, not ready yet, or an error (ID-24, ID-25, CA-17, CA-18,
/// V0-43). Ready while at least one pool serves: sidecars wait for readiness, and a liveness probe must
/// not restart the daemon because of one pool among several. If no pool serves, any failure of a pool or
/// a tool is FAILED_PRECONDITION. If the only problem is an absent pool, the answer is "not ready yet"
/// instead: the pool may come back by itself, and a restarted daemon would only wait for it again
/// (ID-26).
async fn readiness(executor: &Executor) -> Result<bool> {
    match explained_readiness(executor).await? {
        ExplainedReadiness::Ready { .. } => Ok(true),
        ExplainedReadiness::NotReady(_) => Ok(false),
    }
}

enum ExplainedReadiness {
    /// With a warning for the operator, if there is a reason for one.
    Ready {
        warning: Option<String>,
    },
    NotReady(Error),
}

/// As [`readiness`].
async fn explained_readiness(executor: &Executor) -> Result<ExplainedReadiness> {
    match executor.check_health().await {
        Ok(report) => {
            let warning = report.warning();
            executor.note_readiness(true, report.failed);
            Ok(ExplainedReadiness::Ready { warning })
        }
        Err(Error::Starting) => Ok(ExplainedReadiness::NotReady(Error::Starting)),
        Err(error @ Error::Unreachable { .. }) => {
            executor.note_readiness(false, vec![error.clone()]);
            Ok(ExplainedReadiness::NotReady(error))
        }
        Err(error) => {
            let text = error.to_string();
            Err(Error::precondition(Reason::explained(text, error)))
        }
    }
}

/// Names the volume in the span of this call. Called before any check, so that the log line of a refused
/// call names the volume too.
fn note_volume(id: &impl Display) {
    note("volume", id);
}

/// Names the snapshot in the span of this call.
fn note_snapshot(id: &impl Display) {
    note("snapshot", id);
}

/// Names the group, of volumes or of snapshots, in the span of this call.
fn note_group(id: &impl Display) {
    note("group", id);
}

/// For a call that creates an object: records the orchestrator's name for it, as the object has no id
/// yet, and never gets one if the call is refused.
fn note_name(field: &'static str, name: &str) {
    note(field, &name);
}

fn note(field: &'static str, text: &impl Display) {
    let text = orlop_model::id::shown(&text.to_string());
    if !text.is_empty() {
        Span::current().record(field, tracing::field::display(text));
    }
}

/// Unwraps a message whose presence `parse::require` has checked; an error rather than a panic if not.
fn given<T>(field: &'static str, value: Option<T>) -> Result<T> {
    value.ok_or_else(|| Error::invalid(field, "is missing"))
}
