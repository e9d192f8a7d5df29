//! The services: each call is parsed, run on the engine, and answered.

mod addons;
mod controller;
mod group_controller;
mod identity;
mod node;
mod snapshot_metadata;
mod v0;

use std::fmt::Display;

use orlop_model::{Error, Reason, Result};
use tonic::{Response, Status};
use tracing::Span;

pub(crate) use addons::{AddonsIdentity, ReclaimSpace, VolumeGroups};
pub(crate) use controller::Controller;
pub(crate) use group_controller::GroupController;
pub(crate) use identity::Identity;
pub(crate) use node::Node;
pub(crate) use snapshot_metadata::SnapshotMetadata;
pub(crate) use v0::{V0Controller, V0Identity, V0Node};

use crate::executor::Executor;
use crate::status;

/// The unary calls of a service. Each is carried out by the method of the same name of the type itself,
/// which takes the message and returns the reply; those of the second block return it with metadata.
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
                $crate::services::answer_whole(self.$whole(request.into_inner()).await)
            })*)?
        }
    };
}
use unary_calls;

type Answer<Reply> = std::result::Result<Response<Reply>, Status>;

fn answer<Reply>(outcome: Result<Reply>) -> Answer<Reply> {
    answer_whole(outcome.map(Response::new))
}

/// A reply that comes with its own metadata.
fn answer_whole<Reply>(outcome: Result<Response<Reply>>) -> Answer<Reply> {
    outcome.map_err(|error| status::from_error(&error))
}

/// What every kind of Probe tells: ready, still starting, or why it is not well (ID-24, ID-25,
/// CA-17, CA-18, V0-43). Ready while any pool serves: sidecars wait for that, and liveness probes
/// restart what is not, for the sake of one pool among several. Where none serves, whatever is wrong
/// with a pool or a tool is one thing to a prober. A pool that is away is not: it comes back by
/// itself, and a plugin that is restarted for it would only have to wait again, as when it starts
/// (ID-26).
async fn readiness(executor: &Executor) -> Result<bool> {
    match executor.check_health().await {
        Ok(readiness) => {
            executor.note_readiness(true, readiness);
            Ok(true)
        }
        Err(Error::Starting) => Ok(false),
        Err(error @ Error::Unreachable { .. }) => {
            executor.note_readiness(false, vec![error]);
            Ok(false)
        }
        Err(error) => {
            let text = error.to_string();
            Err(Error::precondition(Reason::explained(text, error)))
        }
    }
}

/// Names the volume in the span of this call. Before anything is checked, so that a refusal is not
/// about a volume that the log does not name.
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

/// What the orchestrator calls that which is to be made: it has no id yet, and has none ever if it is
/// refused.
fn note_name(field: &'static str, name: &str) {
    note(field, &name);
}

fn note(field: &'static str, text: &impl Display) {
    let text = orlop_model::id::shown(&text.to_string());
    if !text.is_empty() {
        Span::current().record(field, tracing::field::display(text));
    }
}

/// A message that `require` has seen; were it missing all the same, an error and no panic.
fn given<T>(field: &'static str, value: Option<T>) -> Result<T> {
    value.ok_or_else(|| Error::invalid(field, "is missing"))
}
