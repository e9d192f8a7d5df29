//! The opaque maps that a volume carries from call to call, and inline volumes, which have
//! nothing but such a map.

use std::collections::BTreeMap;

use orlop_engine::request::{InlineVolume, PublishContext, VolumeContext};
use orlop_model::{CapacityRange, Error, Result, parse_quantity};

use super::creation::volume_parameters;
use super::{about, check_map_size};
use crate::features::Features;
use crate::reply::READ_ONLY_KEY;

const VOLUME_CONTEXT: &str = "volume_context";

/// How Kubernetes says that a volume lives and dies with its pod.
const EPHEMERAL_KEY: &str = "csi.storage.k8s.io/ephemeral";

/// The size of an inline volume, which has no claim to ask for one.
const SIZE_KEY: &str = "size";

pub(crate) fn volume_context(context: BTreeMap<String, String>) -> Result<VolumeContext> {
    check_map_size(VOLUME_CONTEXT, &context)?;
    Ok(context)
}

/// Exactly what ControllerPublishVolume hands out, or nothing (NS-15).
pub(crate) fn publish_context(
    context: &BTreeMap<String, String>,
    features: &Features,
) -> Result<PublishContext> {
    const FIELD: &str = "publish_context";
    if context.is_empty() {
        return Ok(PublishContext::default());
    }
    if !features.attach {
        return Err(Error::invalid(
            FIELD,
            "is not empty, but this plugin does not attach volumes to nodes",
        ));
    }
    let mut entries = context.iter();
    let read_only = match (entries.next(), entries.next()) {
        (Some((key, value)), None) if key == READ_ONLY_KEY => parse_flag(value),
        (Some(_) | None, _) => None,
    };
    let read_only = read_only
        .ok_or_else(|| Error::invalid(FIELD, "is not what ControllerPublishVolume returned"))?;
    Ok(PublishContext { read_only })
}

fn parse_flag(text: &str) -> Option<bool> {
    match text {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// `None`: an ordinary volume.
pub(crate) fn inline_volume(
    context: &VolumeContext,
    features: &Features,
) -> Result<Option<InlineVolume>> {
    if context.get(EPHEMERAL_KEY).is_none_or(|value| value != "true") {
        return Ok(None);
    }
    let mut parameters = context.clone();
    let range = parameters.remove(SIZE_KEY).map(|size| inline_size(&size)).transpose()?;
    let (parameters, limits) =
        volume_parameters(&parameters, features).map_err(|error| about(VOLUME_CONTEXT, error))?;
    Ok(Some(InlineVolume { range, parameters, limits }))
}

fn inline_size(text: &str) -> Result<CapacityRange> {
    let bytes = parse_quantity(text).ok_or_else(|| {
        Error::invalid(VOLUME_CONTEXT, "size is not a quantity such as 500Mi, 1Gi or 10G")
    })?;
    CapacityRange::parse(bytes, 0)
}
