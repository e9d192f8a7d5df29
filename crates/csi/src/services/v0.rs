//! csi.v0 (CSI 0.2): other messages, same volumes. Requests are put into the terms of csi.v1 and
//! parsed there; what differs in meaning is here.

mod controller;
mod conversion;
mod identity;
mod node;

use orlop_model::{Error, Result};

pub(crate) use controller::V0Controller;
pub(crate) use identity::V0Identity;
pub(crate) use node::V0Node;

use super::{Answer, answer};

/// For calls that have none.
const NO_SECRETS: &str = "secrets";

/// Errors name the field that the caller filled, which has another name than in csi.v1.
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
