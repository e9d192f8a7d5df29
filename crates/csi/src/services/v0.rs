//! csi.v0 (CSI 0.2): other messages, same volumes. Requests are converted to those of csi.v1 and parsed
//! there; this module has only what differs in meaning.

mod controller;
mod conversion;
mod identity;
mod node;

use orlop_model::{Error, Result};

pub(crate) use controller::V0Controller;
pub(crate) use identity::V0Identity;
pub(crate) use node::V0Node;

use super::{Answer, answer};

/// The name of the secrets field for calls that have none: no error will name it.
const NO_SECRETS: &str = "secrets";

/// Errors name fields as csi.v0 does, where that differs from csi.v1. `secrets` is the call's own field for them.
fn answer_v0<Reply>(outcome: Result<Reply>, secrets: &'static str) -> Answer<Reply> {
    answer(outcome.map_err(|error| in_v0_terms(error, secrets)))
}

fn in_v0_terms(error: Error, secrets: &'static str) -> Error {
    let Error::Invalid { field, reason } = error else {
        return error;
    };
    let field = match field {
        "secrets" => secrets,
        "volume_context" => "volume_attributes",
        "publish_context" => "publish_info",
        other => other,
    };
    Error::Invalid { field, reason }
}
