//! Lists of volumes, page by page, and one volume with its copies.

use std::sync::Arc;

use hyper::StatusCode;
use orlop_engine::{Copies, Engine, ListedSnapshot, ListedVolume, ListedVolumeCopy, VolumeState};
use orlop_model::id::shown;
use orlop_model::{
    Condition, ContentSource, IoLimits, Severity, Timestamp, VolumeId, VolumeRecord,
};
use serde::Serialize;

use super::history::IoView;
use super::query::Query;
use super::{Answered, JSON, Page, Refusal, json, whole};

/// How many volumes one answer lists at most, and if the request does not say.
const MAX_COUNT: usize = 100;
const DEFAULT_COUNT: usize = 25;

#[derive(Serialize)]
struct VolumeList {
    /// How many volumes there are, and how many of them match the request.
    total: usize,
    matching: usize,
    start: usize,
    volumes: Vec<VolumeView>,
    incomplete: Vec<IncompletePool>,
}

#[derive(Serialize)]
struct IncompletePool {
    pool: String,
    why: String,
}

#[derive(Serialize)]
struct VolumeView {
    id: String,
    name: Option<String>,
    pool: String,
    state: &'static str,
    size_bytes: Option<u64>,
    /// How much of the pool its data takes.
    used_bytes: Option<u64>,
    filesystem: Option<String>,
    provisioning: Option<&'static str>,
    created: Option<i64>,
    source: Option<SourceView>,
    snapshots: Option<usize>,
    published: Vec<String>,
    limits: Option<LimitsView>,
    health: HealthView,
    /// Only if it is staged on this node.
    io: Option<IoView>,
}

#[derive(Serialize)]
struct SourceView {
    kind: &'static str,
    id: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LimitsView {
    read_iops: Option<u64>,
    write_iops: Option<u64>,
    read_bytes_per_second: Option<u64>,
    write_bytes_per_second: Option<u64>,
}

#[derive(Serialize)]
struct HealthView {
    /// `normal`, `degraded`, `inaccessible`, `data-loss` or `deleted`.
    verdict: &'static str,
    message: String,
    problems: Vec<ProblemView>,
}

#[derive(Serialize)]
struct ProblemView {
    reason: &'static str,
    message: String,
}

#[derive(Serialize)]
struct VolumeDetails {
    volume: VolumeView,
    /// How many of its bytes nothing else in the pool has; null if that is not known.
    exclusive_bytes: Option<u64>,
    copies: Vec<CopyView>,
    is_truncated: bool,
}

#[derive(Serialize)]
struct CopyView {
    kind: &'static str,
    id: String,
    name: String,
    /// The id of the volume or snapshot that it was made from.
    parent: String,
    size_bytes: u64,
    created: i64,
    /// How much deleting it would free; null if that is not known.
    exclusive_bytes: Option<u64>,
    consistency: Option<&'static str>,
    group: Option<String>,
}

impl Page {
    pub(super) async fn volumes(self: &Arc<Self>, query: &Query) -> Answered {
        let filter = VolumeFilter {
            text: query.text("search").to_lowercase(),
            pool: query.text("pool").to_owned(),
            abnormal: query.text("abnormal") == "1",
            start: query.number("start").unwrap_or(0),
            count: query.number("count").unwrap_or(DEFAULT_COUNT).clamp(1, MAX_COUNT),
        };
        let body = self.query(move |page, engine| json(&page.list(engine, &filter)));
        Ok(whole(JSON, body.await?))
    }

    fn list(&self, engine: &Engine, filter: &VolumeFilter) -> VolumeList {
        let view = engine.volume_listing();
        let total = view.volumes.len();
        let mut found: Vec<ListedVolume> =
            view.volumes.into_iter().filter(|volume| filter.fits(volume)).collect();
        if filter.abnormal {
            let conditions = conditions_of(engine, &found);
            let is_abnormal = |condition: &Option<Condition>| {
                condition.as_ref().is_some_and(Condition::is_abnormal)
            };
            let mut abnormal = conditions.iter().map(is_abnormal);
            found.retain(|_| abnormal.next().unwrap_or(false));
        }
        let matching = found.len();
        let shown: Vec<ListedVolume> =
            found.into_iter().skip(filter.start).take(filter.count).collect();
        let incomplete = view.incomplete.into_iter();
        VolumeList {
            total,
            matching,
            start: filter.start,
            volumes: self.described(engine, shown),
            incomplete: incomplete.map(|(pool, why)| IncompletePool { pool, why }).collect(),
        }
    }

    fn described(&self, engine: &Engine, volumes: Vec<ListedVolume>) -> Vec<VolumeView> {
        let conditions = conditions_of(engine, &volumes);
        let ids: Vec<VolumeId> = volumes.iter().map(|volume| volume.id.clone()).collect();
        let used = engine.used_bytes_by_id(&ids);
        let view = |((volume, condition), used): ((ListedVolume, _), _)| {
            let io = self.history.of(&volume.id);
            VolumeView::of(&volume, condition, used, io)
        };
        volumes.into_iter().zip(conditions).zip(used).map(view).collect()
    }

    pub(super) async fn volume(self: &Arc<Self>, id: &str) -> Answered {
        let id: VolumeId = id
            .parse()
            .map_err(|_| Refusal::new(StatusCode::NOT_FOUND, "there is no volume with this id"))?;
        let body = self.query(move |page, engine| {
            let found = engine.volume_and_copies(&id).map_err(|error| Refusal::of(&error));
            let (volume, copies) = found?;
            let is_truncated = copies.is_truncated;
            let footprint = copies.footprint;
            let mut described = page.described(engine, vec![volume]);
            let volume = described.pop().ok_or_else(|| {
                Refusal::new(StatusCode::NOT_FOUND, "there is no volume with this id")
            })?;
            // The data as it was when it was measured, so that both parts belong together.
            let used_bytes = footprint.map_or(volume.used_bytes, |it| Some(it.taken));
            json(&VolumeDetails {
                volume: VolumeView { used_bytes, ..volume },
                exclusive_bytes: footprint.map(|it| it.exclusive),
                copies: all_copies(copies),
                is_truncated,
            })
        });
        Ok(whole(JSON, body.await?))
    }
}

struct VolumeFilter {
    /// In lower case.
    text: String,
    pool: String,
    abnormal: bool,
    start: usize,
    count: usize,
}

impl VolumeFilter {
    fn fits(&self, volume: &ListedVolume) -> bool {
        let has = |text: &str| text.to_lowercase().contains(&self.text);
        (self.pool.is_empty() || self.pool == volume.pool)
            && (self.text.is_empty()
                || has(&volume.id.to_string())
                || volume.record().is_some_and(|record| has(record.name.as_str())))
    }
}

/// `None`: the volume was deleted.
fn conditions_of(engine: &Engine, volumes: &[ListedVolume]) -> Vec<Option<Condition>> {
    let is_present = |volume: &&ListedVolume| volume.record().is_some();
    let ids: Vec<VolumeId> =
        volumes.iter().filter(is_present).map(|volume| volume.id.clone()).collect();
    let mut conditions = engine.conditions_by_id(&ids).into_iter();
    let condition = |volume: &ListedVolume| match &volume.state {
        VolumeState::Present(_) => conditions.next(),
        VolumeState::Unreadable(problem) => Some(Condition::of(vec![problem.clone()], "")),
        VolumeState::Deleted => None,
    };
    volumes.iter().map(condition).collect()
}

impl VolumeView {
    fn of(
        volume: &ListedVolume,
        condition: Option<Condition>,
        used_bytes: Option<u64>,
        io: Option<IoView>,
    ) -> Self {
        let record = volume.record();
        Self {
            id: volume.id.to_string(),
            name: record.map(|record| shown(record.name.as_str())),
            pool: volume.pool.clone(),
            state: match volume.state {
                VolumeState::Present(_) => "present",
                VolumeState::Unreadable(_) => "unreadable",
                VolumeState::Deleted => "deleted",
            },
            size_bytes: record.map(|record| record.capacity_bytes),
            used_bytes,
            filesystem: record.and_then(filesystem),
            provisioning: record.map(|record| record.parameters.provisioning.as_str()),
            created: record.map(|record| record.created.seconds),
            source: record.and_then(|record| record.source.as_ref()).map(SourceView::of),
            snapshots: volume.snapshots,
            published: record.map(published).unwrap_or_default(),
            limits: record.map(|record| LimitsView::of(record.limits)),
            health: HealthView::of(condition),
            io,
        }
    }
}

fn filesystem(record: &VolumeRecord) -> Option<String> {
    let made = record.format.fs();
    made.or_else(|| record.capabilities.fs()).map(|fs| fs.to_string())
}

fn published(record: &VolumeRecord) -> Vec<String> {
    record.published.keys().map(ToString::to_string).collect()
}

impl SourceView {
    fn of(source: &ContentSource) -> Self {
        match source {
            ContentSource::Snapshot(id) => Self { kind: "snapshot", id: id.to_string() },
            ContentSource::Volume(id) => Self { kind: "volume", id: id.to_string() },
        }
    }
}

impl LimitsView {
    fn of(limits: IoLimits) -> Self {
        Self {
            read_iops: limits.read_iops,
            write_iops: limits.write_iops,
            read_bytes_per_second: limits.read_bytes_per_second,
            write_bytes_per_second: limits.write_bytes_per_second,
        }
    }
}

impl HealthView {
    fn of(condition: Option<Condition>) -> Self {
        let Some(condition) = condition else {
            let message = "the volume was deleted, and snapshots of it are left".to_owned();
            return Self { verdict: "deleted", message, problems: Vec::new() };
        };
        let worst = condition.problems().iter().map(|problem| problem.reason.severity()).max();
        let problem = |problem: &orlop_model::Problem| ProblemView {
            reason: problem.reason.as_str(),
            message: problem.message.clone(),
        };
        Self {
            verdict: match worst {
                None => "normal",
                Some(Severity::Degraded) => "degraded",
                Some(Severity::Inaccessible) => "inaccessible",
                Some(Severity::DataLoss) => "data-loss",
            },
            message: condition.message().to_owned(),
            problems: condition.problems().iter().map(problem).collect(),
        }
    }
}

fn all_copies(copies: Copies) -> Vec<CopyView> {
    let snapshots = copies.snapshots.into_iter().map(snapshot_view);
    let volumes = copies.volumes.into_iter().filter_map(volume_view);
    let mut all: Vec<CopyView> = snapshots.chain(volumes).collect();
    all.sort_by_key(|copy| copy.created);
    all
}

fn snapshot_view(snapshot: ListedSnapshot) -> CopyView {
    let ListedSnapshot { record, footprint } = snapshot;
    let Timestamp { seconds, .. } = record.created;
    CopyView {
        kind: "snapshot",
        id: record.id.to_string(),
        name: shown(record.name.as_str()),
        parent: record.source.to_string(),
        size_bytes: record.size_bytes,
        created: seconds,
        exclusive_bytes: footprint.map(|footprint| footprint.exclusive),
        consistency: Some(record.consistency.as_str()),
        group: record.group.map(|group| group.to_string()),
    }
}

fn volume_view(ListedVolumeCopy { record, footprint }: ListedVolumeCopy) -> Option<CopyView> {
    Some(CopyView {
        kind: "volume",
        id: record.id.to_string(),
        name: shown(record.name.as_str()),
        parent: SourceView::of(record.source.as_ref()?).id,
        size_bytes: record.capacity_bytes,
        created: record.created.seconds,
        exclusive_bytes: footprint.map(|footprint| footprint.exclusive),
        consistency: None,
        group: None,
    })
}
