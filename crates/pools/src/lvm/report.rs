//! Reports of LVM on one volume group: all of it in one command, and so of one instant.

use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// Of each part of a report, the fields that are read.
const FIELDS: [(&str, &str); 5] = [
    (
        "vg",
        "vg_name,vg_uuid,vg_seqno,vg_extent_size,vg_size,vg_free,vg_mda_size,vg_mda_free,\
         vg_missing_pv_count,vg_exported",
    ),
    (
        "lv",
        "lv_name,lv_uuid,lv_size,lv_tags,lv_layout,pool_lv,lv_permissions,lv_active,\
         lv_health_status,lv_metadata_size,data_percent,metadata_percent",
    ),
    ("seg", "lv_name,segtype,thin_id,chunk_size,zero"),
    // LVM leaves no part out. Of these there may be many for each volume, so the less the better.
    ("pv", "pv_name"),
    ("pvseg", "pvseg_start"),
];

/// What differs from an lvm.conf that changes how reports look.
pub(super) const SETTINGS: &str = "report{compact_output=0 compact_output_cols=\"\" \
    list_item_separator=\",\" binary_values_as_numeric=0 mark_hidden_devices=1} \
    log{report_command_log=0 verbose=0}";

/// The arguments of `lvm` for a report on the volume group.
pub(super) fn arguments(group: &str) -> Vec<&str> {
    let mut arguments = vec!["fullreport", "--reportformat", "json", "--units", "b", "--nosuffix"];
    for (part, fields) in FIELDS {
        arguments.extend(["--configreport", part, "--options", fields]);
    }
    arguments.push(group);
    arguments
}

/// What LVM knows of a volume group.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GroupReport {
    pub(super) group: Group,
    pub(super) volumes: Vec<Lv>,
    pub(super) segments: Vec<Segment>,
    /// The paths of its physical volumes; of one that is missing, `[unknown]`.
    pub(super) disks: Vec<String>,
}

impl GroupReport {
    /// The error says why it is no report on one volume group.
    pub(super) fn parse(json: &[u8]) -> Result<Self, String> {
        let Document { report } =
            serde_json::from_slice(json).map_err(|error| format!("it is malformed: {error}"))?;
        let [part] = <[Part; 1]>::try_from(report)
            .map_err(|parts| format!("it is about {} volume groups", parts.len()))?;
        let [group] = <[Group; 1]>::try_from(part.vg)
            .map_err(|groups| format!("it names {} volume groups", groups.len()))?;
        let disks = part.pv.into_iter().map(|disk| disk.path).collect();
        Ok(Self { group, volumes: part.lv, segments: part.seg, disks })
    }

    pub(super) fn lv(&self, name: &str) -> Option<&Lv> {
        self.volumes.iter().find(|lv| lv.name == name)
    }

    /// The number of a thin volume within its pool; it stays as long as the volume.
    pub(super) fn thin_id(&self, name: &str) -> Option<u64> {
        self.segments.iter().find(|segment| segment.lv == name)?.thin_id
    }
}

#[derive(Deserialize)]
struct Document {
    report: Vec<Part>,
}

#[derive(Deserialize)]
struct Part {
    vg: Vec<Group>,
    #[serde(default)]
    lv: Vec<Lv>,
    #[serde(default)]
    seg: Vec<Segment>,
    #[serde(default)]
    pv: Vec<Disk>,
}

#[derive(Deserialize)]
struct Disk {
    #[serde(rename = "pv_name")]
    path: String,
}

/// In bytes.
#[derive(Debug, Deserialize, PartialEq, Eq)]
pub(super) struct Group {
    #[serde(rename = "vg_name")]
    pub(super) name: String,
    #[serde(rename = "vg_uuid")]
    pub(super) uuid: String,
    /// Rises with each change of the volume group, also by other programs.
    #[serde(rename = "vg_seqno", deserialize_with = "number")]
    pub(super) revision: u64,
    #[serde(rename = "vg_extent_size", deserialize_with = "number")]
    pub(super) extent: u64,
    #[serde(rename = "vg_size", deserialize_with = "number")]
    pub(super) size: u64,
    #[serde(rename = "vg_free", deserialize_with = "number")]
    pub(super) free: u64,
    /// Where the volume group is described; of the physical volume that has the least of it.
    #[serde(rename = "vg_mda_size", deserialize_with = "number")]
    pub(super) metadata_area: u64,
    #[serde(rename = "vg_mda_free", deserialize_with = "number")]
    pub(super) metadata_area_free: u64,
    #[serde(rename = "vg_missing_pv_count", deserialize_with = "number")]
    pub(super) missing_disks: u64,
    #[serde(rename = "vg_exported")]
    exported: String,
}

impl Group {
    /// By an operator, for another machine. Reports do without an error then.
    pub(super) fn is_exported(&self) -> bool {
        !self.exported.is_empty()
    }
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
pub(super) struct Lv {
    #[serde(rename = "lv_name")]
    pub(super) name: String,
    #[serde(rename = "lv_uuid")]
    pub(super) uuid: String,
    #[serde(rename = "lv_size", deserialize_with = "number")]
    pub(super) size: u64,
    #[serde(rename = "lv_tags", deserialize_with = "list")]
    pub(super) tags: Vec<String>,
    #[serde(rename = "lv_layout", deserialize_with = "list")]
    layout: Vec<String>,
    /// Of a thin one.
    #[serde(rename = "pool_lv")]
    pub(super) thin_pool: String,
    #[serde(rename = "lv_permissions")]
    permissions: String,
    #[serde(rename = "lv_active")]
    active: String,
    /// Empty if all is well.
    #[serde(rename = "lv_health_status")]
    pub(super) health: String,
    /// Of a thin pool.
    #[serde(rename = "lv_metadata_size", deserialize_with = "optional_number")]
    pub(super) metadata_size: Option<u64>,
    /// Of an active thin pool, or of what is in one.
    #[serde(rename = "data_percent", deserialize_with = "share")]
    pub(super) data_used: Option<Share>,
    #[serde(rename = "metadata_percent", deserialize_with = "share")]
    pub(super) metadata_used: Option<Share>,
}

/// How an LV keeps its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LvKind {
    ThinPool,
    Thin,
    /// In extents of its own.
    Thick,
}

impl Lv {
    pub(super) fn kind(&self) -> LvKind {
        let is = |word: &str| self.layout.iter().any(|layout| layout == word);
        match (is("thin"), is("pool")) {
            (true, true) => LvKind::ThinPool,
            (true, false) => LvKind::Thin,
            (false, _) => LvKind::Thick,
        }
    }

    pub(super) fn is_active(&self) -> bool {
        !self.active.is_empty() && self.active != "unknown"
    }

    /// `read-only-override` is that of the kernel alone.
    pub(super) fn is_read_only(&self) -> bool {
        self.permissions.starts_with("read-only")
    }

    /// Has it copies of its data, or parity?
    pub(super) fn is_redundant(&self) -> bool {
        const LEVELS: [&str; 5] = ["raid1", "raid4", "raid5", "raid6", "raid10"];
        self.layout.iter().any(|layout| LEVELS.contains(&layout.as_str()) || layout == "mirror")
    }
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
pub(super) struct Segment {
    #[serde(rename = "lv_name")]
    pub(super) lv: String,
    #[serde(rename = "segtype")]
    pub(super) kind: String,
    /// The number of a thin volume within its pool.
    #[serde(deserialize_with = "optional_number")]
    pub(super) thin_id: Option<u64>,
    /// Of a thin pool, else 0.
    #[serde(rename = "chunk_size", deserialize_with = "number")]
    pub(super) chunk: u64,
    zero: String,
}

impl Segment {
    /// Of a thin pool: is a chunk zeroed before a volume gets it, so that no volume shows what another has written?
    pub(super) fn zeroes_chunks(&self) -> bool {
        self.zero == "zero"
    }
}

/// A part of a whole, in hundredths of a percent: LVM reports no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Share(u16);

impl Share {
    pub(super) const WHOLE: Self = Self(10_000);

    /// Rounded up to what it may be at most.
    pub(super) fn of(self, bytes: u64) -> u64 {
        let part = (u128::from(bytes) * u128::from(self.0)).div_ceil(u128::from(Self::WHOLE.0));
        u64::try_from(part).unwrap_or(bytes)
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = || {
            let (whole, hundredths) = text.split_once('.')?;
            let hundredths = hundredths.parse::<u16>().ok().filter(|_| hundredths.len() == 2)?;
            whole.parse::<u16>().ok()?.checked_mul(100)?.checked_add(hundredths)
        };
        let share = parsed().map(Self).filter(|share| *share <= Self::WHOLE);
        share.ok_or_else(|| format!("{text:?} is no percentage"))
    }
}

fn number<'de, D: Deserializer<'de>, T: FromStr>(from: D) -> Result<T, D::Error> {
    optional_number(from)?.ok_or_else(|| D::Error::custom("a number is missing"))
}

/// LVM writes numbers as strings, and empty ones for what does not apply.
fn optional_number<'de, D: Deserializer<'de>, T: FromStr>(from: D) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(from)?;
    let malformed = |_| D::Error::custom(format!("{text:?} is no number"));
    if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(malformed) }
}

fn share<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Share>, D::Error> {
    let text = String::deserialize(from)?;
    if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(D::Error::custom) }
}

fn list<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let text = String::deserialize(from)?;
    Ok(text.split(',').filter(|item| !item.is_empty()).map(str::to_owned).collect())
}

/// Of a volume group without anything in it.
#[cfg(test)]
pub(super) fn sample_report(revision: u64) -> GroupReport {
    let group = Group {
        name: "vg".to_owned(),
        uuid: String::new(),
        revision,
        extent: 4 << 20,
        size: 0,
        free: 0,
        metadata_area: 0,
        metadata_area_free: 0,
        missing_disks: 0,
        exported: String::new(),
    };
    GroupReport { group, volumes: Vec::new(), segments: Vec::new(), disks: Vec::new() }
}

#[cfg(test)]
mod tests;
