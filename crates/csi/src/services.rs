//! The services: each call is parsed, run on the engine, and answered.

mod controller;
mod identity;
mod node;

use std::fmt::Display;

use orlop_model::{Error, Result};
use tonic::{Response, Status};
use tracing::{Span, field};

pub(crate) use controller::Controller;
pub(crate) use identity::Identity;
pub(crate) use node::Node;

use crate::status;

fn answer<Reply>(outcome: Result<Reply>) -> std::result::Result<Response<Reply>, Status> {
    outcome.map(Response::new).map_err(|error| status::from_error(&error))
}

/// Names the volume in the span of this call.
fn note_volume(id: &impl Display) {
    Span::current().record("volume", field::display(id));
}

/// Names the snapshot in the span of this call.
fn note_snapshot(id: &impl Display) {
    Span::current().record("snapshot", field::display(id));
}

/// A message that `require` has seen; were it missing all the same, an error and no panic.
fn given<T>(field: &'static str, value: Option<T>) -> Result<T> {
    value.ok_or_else(|| Error::invalid(field, "is missing"))
}
