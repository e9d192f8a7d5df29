//! Which snapshots and volumes came from a volume, and what came from those.

use std::collections::{BTreeMap, BTreeSet};

use orlop_model::Bytes;
use serde::Serialize;

use crate::inventory::{Snapshot, Source, Volume};
use crate::monitor::Footprint;
use crate::terminal::printable;

#[derive(Debug, Serialize)]
pub(crate) struct Copy {
    kind: &'static str,
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    size_bytes: u64,
    /// `None`: the plugin does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    used_bytes: Option<u64>,
    /// Of these, what nothing else has.
    #[serde(skip_serializing_if = "Option::is_none")]
    exclusive_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<String>,
    copies: Vec<Copy>,
}

pub(crate) struct Family<'a> {
    pub(crate) volumes: &'a [Volume],
    pub(crate) snapshots: &'a [Snapshot],
    /// By id, as far as they are known.
    pub(crate) footprints: &'a BTreeMap<String, Footprint>,
}

impl Family<'_> {
    pub(crate) fn of_volume(&self, id: &str) -> Vec<Copy> {
        self.below(&Source::Volume(id.to_owned()), &mut BTreeSet::new())
    }

    pub(crate) fn of_snapshot(&self, id: &str) -> Vec<Copy> {
        self.below(&Source::Snapshot(id.to_owned()), &mut BTreeSet::new())
    }

    fn used(&self, id: &str) -> Option<u64> {
        self.footprints.get(id).map(|footprint| footprint.used_bytes)
    }

    fn exclusive(&self, id: &str) -> Option<u64> {
        self.footprints.get(id).map(|footprint| footprint.exclusive_bytes)
    }

    /// Each object once: a name may have been used again, so that a plugin's ids can form a circle.
    fn below(&self, source: &Source, seen: &mut BTreeSet<String>) -> Vec<Copy> {
        let mut found = Vec::new();
        if let Source::Volume(id) = source {
            for snapshot in self.snapshots.iter().filter(|it| it.source_volume == *id) {
                if seen.insert(snapshot.id.clone()) {
                    found.push(Copy {
                        kind: "snapshot",
                        id: snapshot.id.clone(),
                        name: snapshot.name.clone(),
                        size_bytes: snapshot.size_bytes,
                        used_bytes: self.used(&snapshot.id),
                        exclusive_bytes: self.exclusive(&snapshot.id),
                        created: Some(snapshot.created.clone()),
                        copies: self.below(&Source::Snapshot(snapshot.id.clone()), seen),
                    });
                }
            }
        }
        for volume in self.volumes.iter().filter(|it| it.source.as_ref() == Some(source)) {
            if seen.insert(volume.id.clone()) {
                found.push(Copy {
                    kind: "volume",
                    id: volume.id.clone(),
                    name: volume.name.clone(),
                    size_bytes: volume.size_bytes,
                    used_bytes: self.used(&volume.id).or(volume.used_bytes),
                    exclusive_bytes: self.exclusive(&volume.id),
                    created: None,
                    copies: self.below(&Source::Volume(volume.id.clone()), seen),
                });
            }
        }
        found
    }
}

/// As lines below the object.
pub(crate) fn drawn(copies: &[Copy], before: &str) -> String {
    let mut text = String::new();
    for (index, copy) in copies.iter().enumerate() {
        let is_last = index + 1 == copies.len();
        let (branch, further) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let created = copy.created.as_ref().map(|it| format!(", {it}")).unwrap_or_default();
        let used = copy.used_bytes.map(|used| {
            let parts = copy.exclusive_bytes.map(|exclusive| Footprint::parts(used, exclusive));
            let parts = parts.map(|parts| format!(": {parts}")).unwrap_or_default();
            format!(", {} used{parts}", Bytes(used))
        });
        let used = used.unwrap_or_default();
        let name = copy.name.as_ref().map(|it| printable(&format!("{it}, "))).unwrap_or_default();
        text.push_str(&format!(
            "{before}{branch}{} {} ({name}{}{used}{created})\n",
            copy.kind,
            copy.id,
            Bytes(copy.size_bytes)
        ));
        text.push_str(&drawn(&copy.copies, &format!("{before}{further}")));
    }
    text
}
