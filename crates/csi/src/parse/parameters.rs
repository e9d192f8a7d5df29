//! The maps of a StorageClass, a VolumeAttributesClass and a VolumeSnapshotClass.

use std::collections::BTreeMap;

use orlop_model::parameters::is_foreign_key;
use orlop_model::{Error, IoLimitsChange, Result, VolumeParameters};

use super::fields::{about, check_map_size};
use crate::offers::Offers;

const NO_LIMITS: &str = "asks for I/O limits, which cannot be set here";

/// What the volume is, and the limits that it starts with.
pub(crate) fn volume_parameters(
    parameters: &BTreeMap<String, String>,
    offers: &Offers,
) -> Result<(VolumeParameters, IoLimitsChange)> {
    check_map_size("parameters", parameters)?;
    let (parsed, limits) = VolumeParameters::parse(parameters)?;
    if !limits.is_empty() && !offers.limits {
        return Err(Error::invalid("parameters", NO_LIMITS));
    }
    Ok((parsed, limits))
}

/// CV-21: without MODIFY_VOLUME there are no mutable parameters.
pub(crate) fn mutable_parameters(
    parameters: &BTreeMap<String, String>,
    offers: &Offers,
) -> Result<IoLimitsChange> {
    const FIELD: &str = "mutable_parameters";
    check_map_size(FIELD, parameters)?;
    if !parameters.is_empty() && !offers.limits {
        return Err(Error::invalid(FIELD, NO_LIMITS));
    }
    IoLimitsChange::parse(parameters).map_err(|error| about(FIELD, error))
}

/// Snapshots have no parameters of ours; what orchestrators add for themselves is theirs (CS-13).
pub(crate) fn check_snapshot_parameters(parameters: &BTreeMap<String, String>) -> Result<()> {
    check_map_size("parameters", parameters)?;
    match parameters.keys().find(|key| !is_foreign_key(key)) {
        Some(key) => Err(Error::invalid(
            "parameters",
            format!(
                "{} is not a parameter of a snapshot; there are none",
                orlop_model::id::shown(key)
            ),
        )),
        None => Ok(()),
    }
}
