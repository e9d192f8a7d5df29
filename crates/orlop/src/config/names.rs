//! The driver's name and this node's topology.

use std::collections::BTreeMap;

use orlop_model::{NodeId, Topology};

use super::ConfigError;

pub(super) const DEFAULT_DRIVER: &str = "csi.orlop.io";

/// ID-03 to ID-05: a domain name of at most 63 characters.
pub(super) fn driver_name(given: Option<String>) -> Result<String, ConfigError> {
    let name = given.unwrap_or_else(|| DEFAULT_DRIVER.to_owned());
    let label = |label: &str| {
        label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && label.starts_with(|c: char| c.is_ascii_alphabetic())
            && label.ends_with(|c: char| c.is_ascii_alphanumeric())
    };
    if name.len() <= 63 && name.split('.').all(label) {
        return Ok(name);
    }
    Err(ConfigError::new(
        "ORLOP_DRIVER_NAME",
        format!("{name:?} is not a domain name of at most 63 characters"),
    ))
}

/// The machine's name, unless another was given. It is also the value of a topology segment.
pub(super) fn node_id(given: Option<String>) -> Result<NodeId, ConfigError> {
    let uname = rustix::system::uname();
    let whose = if given.is_some() { "" } else { "the host name " };
    let name = given.unwrap_or_else(|| uname.nodename().to_string_lossy().into_owned());
    let fits = Topology::parse([("node".to_owned(), name.clone())]).is_ok();
    match name.parse() {
        Ok(id) if fits => Ok(id),
        Ok(_) | Err(_) => Err(ConfigError::new(
            "ORLOP_NODE_ID",
            format!("{whose}{name:?} is not {VALUE}; set it to such a name of this node"),
        )),
    }
}

/// TP-03.
const VALUE: &str = "at most 63 letters, digits, '-', '_', '.' that begin and end with a letter or \
                     digit";

/// TP-05: all keys have the driver's name as their prefix. The node itself is always one.
pub(super) fn topology(
    driver_name: &str,
    node: &NodeId,
    extra: BTreeMap<String, String>,
) -> Result<Topology, ConfigError> {
    let wrong = |problem: String| ConfigError::new("ORLOP_TOPOLOGY", problem);
    if let Some(key) = extra.keys().find(|key| key.contains('/')) {
        return Err(wrong(format!("{key:?}: give names only; the prefix is the driver's name")));
    }
    if let Some(key) = extra.keys().find(|key| key.eq_ignore_ascii_case(Topology::NODE)) {
        return Err(wrong(format!("{key:?} is always the node id; set ORLOP_NODE_ID instead")));
    }
    let prefix = driver_name.to_ascii_lowercase();
    let own = [(Topology::NODE.to_owned(), node.to_string())];
    let segments =
        extra.into_iter().chain(own).map(|(key, value)| (format!("{prefix}/{key}"), value));
    Topology::parse(segments).map_err(|problem| wrong(format!("{problem}; values are {VALUE}")))
}
