//! Places: where a node is, from where a volume can be reached.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The location of a node or pool, as segments such as `example.com/zone = z1`. Keys compare without regard to case
/// (TP-06), so they are kept in the spelling given and looked up in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct Topology(BTreeMap<String, Segment>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Segment {
    key: String,
    value: String,
}

impl Topology {
    /// The name of the segment that every node has; its value is the node id.
    pub const NODE: &str = "node";

    pub fn parse(
        segments: impl IntoIterator<Item = (String, String)>,
    ) -> std::result::Result<Self, String> {
        let mut by_key = BTreeMap::new();
        for (key, value) in segments {
            if !is_key(&key) {
                return Err("a topology key is not of the form [prefix/]name".to_owned());
            }
            if !is_label(&value, |b| b.is_ascii_alphanumeric(), b"-_.") {
                return Err(format!("the value of topology key {key} is not allowed"));
            }
            let lower = key.to_ascii_lowercase();
            if by_key.insert(lower, Segment { key: key.clone(), value }).is_some() {
                return Err(format!("topology key {key} is given twice, in different case"));
            }
        }
        Ok(Self(by_key))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn segments(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.values().map(|segment| (segment.key.as_str(), segment.value.as_str()))
    }

    /// Is it a place that only this node can be at?
    pub fn names_node(&self, node: &str) -> bool {
        let is_node = |key: &str| key.rsplit('/').next() == Some(Self::NODE);
        self.0.iter().any(|(key, segment)| is_node(key) && segment.value == node)
    }

    /// Is this topology inside `wider`, that is, does it have all of its segments?
    pub fn is_within(&self, wider: &Self) -> bool {
        wider.0.iter().all(|(key, wanted)| {
            self.0.get(key).is_some_and(|segment| segment.value == wanted.value)
        })
    }
}

/// TP-01 to TP-03.
fn is_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let lower = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    prefix.is_none_or(|prefix| is_label(prefix, lower, b"-."))
        && is_label(name, |b| b.is_ascii_alphanumeric(), b"-_.")
}

fn is_label(text: &str, outer: impl Fn(u8) -> bool, also_inside: &[u8]) -> bool {
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    bytes.len() <= 63
        && outer(*first)
        && outer(*last)
        && bytes.iter().all(|b| outer(*b) || also_inside.contains(b))
}

impl TryFrom<BTreeMap<String, String>> for Topology {
    type Error = Error;

    fn try_from(segments: BTreeMap<String, String>) -> Result<Self> {
        Self::parse(segments).map_err(|reason| Error::invalid("topology", reason))
    }
}

impl From<Topology> for BTreeMap<String, String> {
    fn from(topology: Topology) -> Self {
        topology.0.into_values().map(|segment| (segment.key, segment.value)).collect()
    }
}

/// Where a caller wants a volume: reachable from at least one of `requisite`, and if possible
/// from the earliest of `preferred`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyRequirement {
    requisite: Vec<Topology>,
    preferred: Vec<Topology>,
}

impl TopologyRequirement {
    /// TP-09, TP-18.
    pub fn new(requisite: Vec<Topology>, preferred: Vec<Topology>) -> Result<Self> {
        const FIELD: &str = "accessibility_requirements";
        if requisite.is_empty() && preferred.is_empty() {
            return Err(Error::invalid(FIELD, "has neither requisite nor preferred"));
        }
        if !requisite.is_empty() && preferred.iter().any(|topology| !requisite.contains(topology)) {
            return Err(Error::invalid(
                FIELD,
                "has a preferred topology that is not among the requisite ones",
            ));
        }
        Ok(Self { requisite, preferred })
    }

    /// None: any place will do.
    pub fn requisite(&self) -> &[Topology] {
        &self.requisite
    }

    /// How well storage at `offered` meets the requirement: `None` not at all, else lower is better. Preferred
    /// topologies come in their order, then the other requisite ones; without requisite, any
    /// topology will do in the end (TP-14, TP-16).
    pub fn rank(&self, offered: &Topology) -> Option<usize> {
        let preferred = self.preferred.iter().position(|wanted| offered.is_within(wanted));
        let allowed = self.requisite.is_empty()
            || self.requisite.iter().any(|wanted| offered.is_within(wanted));
        allowed.then(|| preferred.unwrap_or(self.preferred.len()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn topology(segments: &[(&str, &str)]) -> Topology {
        Topology::parse(segments.iter().map(|(k, v)| (k.to_string(), v.to_string()))).unwrap()
    }

    #[test]
    fn malformed_segments_are_refused() {
        let long = "x".repeat(64);
        for (key, value) in [
            ("Zone_", "a"),
            ("zone", ""),
            ("zone", "a_"),
            ("Example.com/zone", "a"),
            ("/zone", "a"),
            ("a/b/c", "a"),
            ("zone", long.as_str()),
            (long.as_str(), "a"),
        ] {
            assert!(
                Topology::parse([(key.to_owned(), value.to_owned())]).is_err(),
                "{key}={value}"
            );
        }
    }

    #[test]
    fn keys_compare_without_case() {
        let twice = [("Zone", "a"), ("zone", "b")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert!(Topology::parse(twice).is_err());
        assert!(topology(&[("Zone", "a"), ("rack", "r")]).is_within(&topology(&[("zone", "a")])));
        assert!(!topology(&[("zone", "a")]).is_within(&topology(&[("zone", "a"), ("rack", "r")])));
    }

    #[test]
    fn preferred_topologies_rank_in_order() {
        let (a, b, c) = (topology(&[("z", "a")]), topology(&[("z", "b")]), topology(&[("z", "c")]));
        let wanted = TopologyRequirement::new(vec![a.clone(), b.clone()], vec![b.clone()]).unwrap();
        assert_eq!(wanted.rank(&b), Some(0));
        assert_eq!(wanted.rank(&a), Some(1));
        assert_eq!(wanted.rank(&c), None);
        let open = TopologyRequirement::new(vec![], vec![a.clone()]).unwrap();
        assert_eq!(open.rank(&c), Some(1));
    }

    #[test]
    fn contradictory_requirements_are_refused() {
        assert!(TopologyRequirement::new(vec![], vec![]).is_err());
        let stray =
            TopologyRequirement::new(vec![topology(&[("z", "a")])], vec![topology(&[("z", "b")])]);
        assert!(stray.is_err());
    }
}
