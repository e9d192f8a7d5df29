//! Which snapshots and volumes came from a volume, and what came from those.

use std::collections::BTreeSet;

use orlop_model::Bytes;
use serde::Serialize;

use crate::inventory::{Snapshot, Source, Volume};
use crate::terminal::printable;

#[derive(Debug, Serialize)]
pub(crate) struct Copy {
    kind: &'static str,
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    size_bytes: u64,
    /// Of a volume; where the plugin tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    used_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<String>,
    copies: Vec<Copy>,
}

pub(crate) struct Family<'a> {
    pub(crate) volumes: &'a [Volume],
    pub(crate) snapshots: &'a [Snapshot],
}

impl Family<'_> {
    pub(crate) fn of_volume(&self, id: &str) -> Vec<Copy> {
        self.below(&Source::Volume(id.to_owned()), &mut BTreeSet::new())
    }

    pub(crate) fn of_snapshot(&self, id: &str) -> Vec<Copy> {
        self.below(&Source::Snapshot(id.to_owned()), &mut BTreeSet::new())
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
                        used_bytes: None,
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
                    used_bytes: volume.used_bytes,
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
        let used = copy.used_bytes.map(|it| format!(", {} used", Bytes(it))).unwrap_or_default();
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
