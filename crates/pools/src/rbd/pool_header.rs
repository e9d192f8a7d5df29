//! `orlop.pool`: what makes a pool of the cluster one of Orlop's.
//!
//! Unlike the header of an image pool it is no lock: many processes use the pool at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use orlop_model::{
    Error, GroupSnapshotId, PoolId, PoolInfo, Reason, Result, SnapshotId, VolumeGroupId, VolumeId,
};
use orlop_sys::ceph::IoCtx;
use orlop_sys::rand::random_bytes;
use serde::{Deserialize, Serialize};

use super::layout::{POOL_HEADER, RECORDS, SNAPSHOTS, VOLUMES, volume_prefix};
use super::session::{Session, cannot};

const FORMAT: u32 = 1;
const KIND: &str = "rbd";

#[derive(Debug, Serialize, Deserialize)]
struct RbdHeader {
    format: u32,
    id: PoolId,
    kind: String,
}

/// All that is certain about a header of any version.
#[derive(Deserialize)]
struct RbdHeaderFormat {
    format: u32,
}

/// Several processes may create the pool at once; all get the id of the first.
pub(super) fn read_or_create(session: &Session, create: bool) -> Result<PoolId> {
    if let Some(id) = read(session)? {
        check_is_of_contents(session, &id)?;
        return Ok(id);
    }
    let ids = ids_in_use(session)?;
    if !ids.is_empty() {
        // Another process may have made the pool since, and volumes in it.
        return match read(session)? {
            Some(id) => Ok(id),
            None => {
                let reason = format!("its pool header {POOL_HEADER} is lost");
                Err(header_wrong(session.ceph_pool(), &reason, &ids)?)
            }
        };
    }
    let making = || format!("make a pool in the Ceph pool {}", session.ceph_pool());
    if !create {
        return Err(Error::failed(
            making(),
            "it holds no pool of Orlop, and the configuration does not allow a new one",
        ));
    }
    tracing::warn!(
        pool = session.ceph_pool(),
        "this Ceph pool is new to Orlop; writing the pool header"
    );
    let id = PoolId::from_random(random_bytes().map_err(cannot(making))?);
    let text = text_of(id).map_err(|error| Error::failed(making(), Reason::of(error)))?;
    // The header comes last: what is without it is no pool.
    session.ask(making, |io| {
        io.ensure_object(RECORDS)?;
        match io.create(POOL_HEADER, text.as_bytes()) {
            Err(error) if error.is_taken() => Ok(()),
            done => done,
        }
    })?;
    read(session)?.ok_or_else(|| Error::failed(making(), "the pool header was removed again"))
}

fn text_of(id: PoolId) -> serde_json::Result<String> {
    serde_json::to_string(&RbdHeader { format: FORMAT, id, kind: KIND.to_owned() })
}

/// The pool ids in the names of volumes, snapshots and groups that are there, and how many name each. A daemon that was
/// killed before it wrote the header has made none.
fn ids_in_use(session: &Session) -> Result<BTreeMap<PoolId, usize>> {
    let looking = || format!("find volumes in the Ceph pool {}", session.ceph_pool());
    let images = session.ask(looking, |io| io.image_names("", VOLUMES, 0))?;
    let volumes = images.iter().filter_map(|(name, _)| name.parse::<VolumeId>().ok());
    let volumes = volumes.map(|id| id.pool().clone());
    let records = session.ask(looking, |io| io.omap_list(RECORDS, "", "", 0))?;
    let recorded = records.iter().filter_map(|(key, _)| key.split('.').find_map(pool_of));
    let mut ids = BTreeMap::new();
    volumes.chain(recorded).for_each(|id| *ids.entry(id).or_default() += 1);
    Ok(ids)
}

/// A header that belongs to another pool shows an empty pool where there are volumes, and orchestrators take what
/// is missing from a list for deleted.
fn check_is_of_contents(session: &Session, id: &PoolId) -> Result<()> {
    let looking = || format!("find volumes in the Ceph pool {}", session.ceph_pool());
    let own = session.ask(looking, |io| {
        let volumes = io.image_names("", &volume_prefix(id), 1)?;
        let snapshots = io.omap_list(RECORDS, "", &format!("{SNAPSHOTS}{id}-"), 1)?;
        Ok(!volumes.is_empty() || !snapshots.is_empty())
    })?;
    if own {
        return Ok(());
    }
    let ids = ids_in_use(session)?;
    if ids.is_empty() || ids.contains_key(id) {
        return Ok(());
    }
    let reason =
        format!("its pool header {POOL_HEADER} is that of pool {id}, of which nothing is in it");
    Err(header_wrong(session.ceph_pool(), &reason, &ids)?)
}

/// The pool id in a record's key.
fn pool_of(id: &str) -> Option<PoolId> {
    let of_snapshot = || Some(id.parse::<SnapshotId>().ok()?.pool().clone());
    let of_group_snapshot = || Some(id.parse::<GroupSnapshotId>().ok()?.pool().clone());
    let of_group = || Some(id.parse::<VolumeGroupId>().ok()?.pool().clone());
    let of_volume = || Some(id.parse::<VolumeId>().ok()?.pool().clone());
    of_snapshot().or_else(of_group_snapshot).or_else(of_group).or_else(of_volume)
}

/// `ids`: of what is there. An image of another pool may have been restored among those of this one; with the id of
/// that pool in the header, the volumes of this one would be in no list.
fn header_wrong(pool: &str, reason: &str, ids: &BTreeMap<PoolId, usize>) -> Result<Error> {
    let what = format!("the Ceph pool {pool}");
    let most = ids.iter().max_by_key(|(_, count)| **count).map(|(id, _)| id.clone());
    let text = most.map(text_of).transpose();
    let text = text.map_err(|error| Error::failed(format!("open {what}"), Reason::of(error)))?;
    let text = text.unwrap_or_default();
    let listed: Vec<String> = ids.iter().map(|(id, count)| format!("{id} ({count})")).collect();
    let advice = match ids.len() {
        1 => format!("restore the object {POOL_HEADER} with the contents {text}"),
        _ => format!(
            "there is more than one, so restore the object {POOL_HEADER} with the id of the pool that was served \
             here, as in {text}; with another id, its volumes are not found"
        ),
    };
    let listed = listed.join(", ");
    let reason =
        format!("{reason}; volumes, snapshots or groups of pool {listed} are in it; {advice}");
    Ok(Error::damaged(what, reason))
}

pub(super) fn read(session: &Session) -> Result<Option<PoolId>> {
    let reading = || format!("open the Ceph pool {}", session.ceph_pool());
    let text = session.ask_unguarded(reading, text_in)?;
    text.map(|text| parse(session.ceph_pool(), &text)).transpose()
}

fn text_in(io: &Arc<IoCtx>) -> orlop_sys::Result<Option<Vec<u8>>> {
    match io.read(POOL_HEADER) {
        Err(error) if error.is_not_found() => Ok(None),
        text => text.map(Some),
    }
}

/// Before something is made: what is made under an id that is not the pool's is lost to daemons that
/// start later.
pub(super) fn check_unchanged(session: &Session, info: &PoolInfo) -> Result<()> {
    let text = session.ask(|| format!("check pool {}", info.name), text_in)?;
    let found = text.map(|text| parse(session.ceph_pool(), &text)).transpose()?;
    check_is(found.as_ref(), info)
}

/// The id in the header that is there now.
pub(super) fn check_is(found: Option<&PoolId>, info: &PoolInfo) -> Result<()> {
    let PoolInfo { id, name, .. } = info;
    let what = match found {
        Some(found) if found == id => return Ok(()),
        Some(found) => format!("it is now the header of pool {found}"),
        None => "it is gone".to_owned(),
    };
    let text = text_of(id.clone())
        .map_err(|error| Error::failed(format!("check pool {name}"), Reason::of(error)))?;
    Err(Error::precondition(format!(
        "cannot use pool {name} for anything new: this daemon serves it by the id {id}, and its pool \
         header {POOL_HEADER} has changed: {what}; if the Ceph pool was made again, restart the \
         daemon, else restore that object with the contents {text}"
    )))
}

pub(crate) fn parse(pool: &str, text: &[u8]) -> Result<PoolId> {
    let what = || format!("the pool header {POOL_HEADER} of the Ceph pool {pool}");
    let damaged = |error| Error::damaged(what(), error);
    let RbdHeaderFormat { format } = serde_json::from_slice(text).map_err(damaged)?;
    if format != FORMAT {
        return Err(Error::failed(
            format!("open the Ceph pool {pool}"),
            format!("it has format {format}, this version of Orlop reads format {FORMAT}"),
        ));
    }
    let contents: RbdHeader = serde_json::from_slice(text).map_err(damaged)?;
    Ok(contents.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_refused_and_a_torn_header_is_damage() {
        let whole = br#"{"format":1,"id":"0123abcd","kind":"rbd"}"#;
        assert_eq!(parse("p", whole).unwrap().as_str(), "0123abcd");
        let later = parse("p", br#"{"format":2,"place":"elsewhere"}"#);
        assert!(matches!(later, Err(Error::Failed { .. })), "{later:?}");
        let torn = parse("p", &whole[..20]);
        assert!(matches!(torn, Err(Error::Damaged { .. })), "{torn:?}");
    }
}
