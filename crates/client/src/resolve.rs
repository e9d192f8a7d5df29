//! From what a person types to an id: an id, the name that the orchestrator gave, or the beginning of one.

use orlop_model::{NameDigest, SnapshotId, VolumeId};

use crate::failure::{Failure, Result};
use crate::plugin::{Offer, Plugin};
use crate::terminal::printable;
use crate::{inventory, monitor};

/// Names that the plugin does not list are requested one by one. Of more objects than this, they are not requested.
const MAX_NAMES: usize = 500;
const MAX_CANDIDATES: usize = 10;
/// The beginning of a digest must have this length, because names such as `c` or `db` begin the digests of other volumes.
const SHORTEST_DIGEST: usize = 8;
/// The Jaro-Winkler similarity from which on a name is suggested.
const MIN_SIMILARITY: f64 = 0.8;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Volume,
    Snapshot,
    Group,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Volume => "volume",
            Self::Snapshot => "snapshot",
            Self::Group => "group snapshot",
        }
    }

    /// Orlop's ids hold a digest of the name.
    fn digest_of(self, id: &str) -> Option<String> {
        match self {
            Self::Volume => id.parse::<VolumeId>().ok().map(|id| id.digest().as_str().to_owned()),
            Self::Snapshot => {
                id.parse::<SnapshotId>().ok().map(|id| id.digest().as_str().to_owned())
            }
            Self::Group => {
                let id = id.parse::<orlop_model::GroupSnapshotId>();
                id.ok().map(|id| id.digest().as_str().to_owned())
            }
        }
    }
}

/// Whether the beginning of an id or a name is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Match {
    /// For commands that delete: a repeated `delete data` must not find `data-2`.
    Whole,
    Beginning,
}

/// An object that could be meant.
#[derive(Debug, Clone)]
struct Candidate {
    id: String,
    name: Option<String>,
}

pub(crate) async fn volume(plugin: &Plugin, given: &str) -> Result<String> {
    find_volume(plugin, given, Match::Beginning).await
}

pub(crate) async fn whole_volume(plugin: &Plugin, given: &str) -> Result<String> {
    find_volume(plugin, given, Match::Whole).await
}

/// `None`: there is no list now, because one of several pools is away. A whole id of Orlop needs none.
fn listed_for<T>(kind: Kind, given: &str, listed: Result<T>) -> Result<Option<T>> {
    match listed {
        Err(Failure::Failed(_)) if kind.digest_of(given).is_some() => Ok(None),
        listed => listed.map(Some),
    }
}

async fn find_volume(plugin: &Plugin, given: &str, wanted: Match) -> Result<String> {
    if !plugin.offers(Offer::ListVolumes) {
        return as_it_is(given, Kind::Volume);
    }
    let Some(listed) = listed_for(Kind::Volume, given, inventory::volumes(plugin).await)? else {
        return Ok(given.to_owned());
    };
    let ids: Vec<String> = listed.into_iter().map(|volume| volume.id).collect();
    if let Some(id) = by_id(Kind::Volume, given, &ids, wanted)? {
        return Ok(id);
    }
    let mut known = monitor::volumes(plugin).await;
    let (mut named, mut requested) = (Vec::new(), 0);
    for id in ids {
        if let Some(volume) = known.remove(&id) {
            named.push(Candidate { id, name: Some(volume.name) });
            continue;
        }
        let is_requested = requested < MAX_NAMES && plugin.offers(Offer::GetVolume);
        requested += 1;
        // The name of a volume that cannot be read is not known. One that was deleted since is skipped.
        let name = match is_requested {
            true => match inventory::volume(plugin, &id).await {
                Ok(found) => found.name,
                Err(failure) if failure.is_not_found() => continue,
                Err(_) => None,
            },
            false => None,
        };
        named.push(Candidate { id, name });
    }
    by_name(Kind::Volume, given, &named, wanted)
}

pub(crate) async fn snapshot(plugin: &Plugin, given: &str) -> Result<String> {
    find_snapshot(plugin, given, Match::Beginning).await
}

pub(crate) async fn whole_snapshot(plugin: &Plugin, given: &str) -> Result<String> {
    find_snapshot(plugin, given, Match::Whole).await
}

async fn find_snapshot(plugin: &Plugin, given: &str, wanted: Match) -> Result<String> {
    if !plugin.offers(Offer::ListSnapshots) {
        return as_it_is(given, Kind::Snapshot);
    }
    let listed = inventory::snapshots(plugin, None).await;
    let Some(listed) = listed_for(Kind::Snapshot, given, listed)? else {
        return Ok(given.to_owned());
    };
    let ids: Vec<String> = listed.into_iter().map(|snapshot| snapshot.id).collect();
    if let Some(id) = by_id(Kind::Snapshot, given, &ids, wanted)? {
        return Ok(id);
    }
    let mut known = monitor::snapshots(plugin).await;
    let (mut named, mut requested) = (Vec::new(), 0);
    for id in ids {
        if let Some(snapshot) = known.remove(&id) {
            named.push(Candidate { id, name: Some(snapshot.name) });
            continue;
        }
        let is_requested = requested < MAX_NAMES && plugin.offers(Offer::GetSnapshot);
        requested += 1;
        let name = match is_requested {
            true => match inventory::snapshot(plugin, &id).await {
                Ok(found) => found.name,
                Err(failure) if failure.is_not_found() => continue,
                Err(_) => None,
            },
            false => None,
        };
        named.push(Candidate { id, name });
    }
    by_name(Kind::Snapshot, given, &named, wanted)
}

pub(crate) fn group(ids: Vec<String>, given: &str, wanted: Match) -> Result<String> {
    if let Some(id) = by_id(Kind::Group, given, &ids, wanted)? {
        return Ok(id);
    }
    let named: Vec<_> = ids.into_iter().map(|id| Candidate { id, name: None }).collect();
    by_name(Kind::Group, given, &named, wanted)
}

/// A plugin without lists decides whether this is one of its ids.
fn as_it_is(given: &str, kind: Kind) -> Result<String> {
    match given.is_empty() {
        true => {
            Err(Failure::usage(format!("cannot find a {}: its id or name is empty", kind.as_str())))
        }
        false => Ok(given.to_owned()),
    }
}

/// What needs no names: the id, the whole name by its digest, or the beginning of an id or a digest.
fn by_id(kind: Kind, given: &str, ids: &[String], wanted: Match) -> Result<Option<String>> {
    if ids.iter().any(|id| id == given) {
        return Ok(Some(given.to_owned()));
    }
    as_it_is(given, kind)?;
    let digest = NameDigest::of_text(given);
    let of_name = ids.iter().filter(|id| kind.digest_of(id).as_deref() == Some(digest.as_str()));
    let begins_digest = |id: &str| {
        given.len() >= SHORTEST_DIGEST
            && kind.digest_of(id).is_some_and(|digest| digest.starts_with(given))
    };
    let begins =
        |id: &&String| wanted == Match::Beginning && (id.starts_with(given) || begins_digest(id));
    for found in [of_name.collect::<Vec<_>>(), ids.iter().filter(begins).collect()] {
        match found.as_slice() {
            [] => {}
            [one] => return Ok(Some((*one).clone())),
            several => return Err(ambiguous(kind, given, several.iter().map(|id| (*id).clone()))),
        }
    }
    Ok(None)
}

fn by_name(kind: Kind, given: &str, all: &[Candidate], wanted: Match) -> Result<String> {
    let named = |candidate: &&Candidate| {
        candidate.name.as_ref().is_some_and(|name| match wanted {
            Match::Whole => name == given,
            Match::Beginning => name.starts_with(given),
        })
    };
    let found: Vec<&Candidate> = all.iter().filter(named).collect();
    match found.as_slice() {
        [one] if is_whole(one, given) || all.iter().all(|it| it.name.is_some()) => {
            Ok(one.id.clone())
        }
        [one] => Err(uncertain(kind, given, one, all)),
        [] => Err(missing(kind, given, all)),
        several => Err(ambiguous(kind, given, several.iter().map(|candidate| label(candidate)))),
    }
}

fn is_whole(candidate: &Candidate, given: &str) -> bool {
    candidate.name.as_deref() == Some(given)
}

/// One of the unknown names may begin in the same way.
fn uncertain(kind: Kind, given: &str, one: &Candidate, all: &[Candidate]) -> Failure {
    let unknown = all.iter().filter(|candidate| candidate.name.is_none()).count();
    let what = kind.as_str();
    Failure::usage(format!(
        "cannot tell whether {given:?} is {what} {}: the names of {unknown} others are not known, because there are more than \
         {MAX_NAMES} or they cannot be read; give the whole name, or the id",
        label(one)
    ))
}

fn label(candidate: &Candidate) -> String {
    match &candidate.name {
        Some(name) => format!("{} ({})", printable(name), candidate.id),
        None => candidate.id.clone(),
    }
}

fn ambiguous(kind: Kind, given: &str, found: impl ExactSizeIterator<Item = String>) -> Failure {
    let more = found.len().saturating_sub(MAX_CANDIDATES);
    let mut listed: Vec<String> = found.take(MAX_CANDIDATES).collect();
    if more > 0 {
        listed.push(format!("and {more} more"));
    }
    let what = kind.as_str();
    Failure::usage(format!(
        "cannot tell which {what} {given:?} is: {}; give more of the id or name",
        listed.join(", ")
    ))
}

fn missing(kind: Kind, given: &str, all: &[Candidate]) -> Failure {
    let likeness = |candidate: &Candidate| {
        let of_id = strsim::jaro_winkler(given, &candidate.id);
        let of_name = candidate.name.as_ref().map_or(0.0, |name| strsim::jaro_winkler(given, name));
        of_id.max(of_name)
    };
    let best = all.iter().map(|candidate| (likeness(candidate), candidate));
    let best =
        best.filter(|(score, _)| *score >= MIN_SIMILARITY).max_by(|(a, _), (b, _)| a.total_cmp(b));
    let what = kind.as_str();
    Failure::refused(match best {
        Some((_, candidate)) => {
            format!("there is no {what} {given:?}; did you mean {}?", label(candidate))
        }
        None => format!("there is no {what} {given:?}; `orlop {} list` shows all", kind.noun()),
    })
}

impl Kind {
    fn noun(self) -> &'static str {
        match self {
            Self::Volume => "volume",
            Self::Snapshot => "snapshot",
            Self::Group => "group",
        }
    }
}

#[cfg(test)]
mod tests;
