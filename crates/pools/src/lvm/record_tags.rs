//! A record as the text of tags, in numbered pieces.
//!
//! LVM changes all tags of a logical volume in one commit, so a record is never torn by a crash. Each piece has the
//! checksum of the whole all the same, with the id in it: an operator may have removed a tag, or copied one from elsewhere.

use std::fmt::Display;

use orlop_model::{
    Error, GroupSnapshotRecord, NameDigest, Reason, Result, SnapshotRecord, VolumeGroupRecord,
    VolumeRecord,
};
use serde::ser::Error as _;
use serde_json::{Map, Value};

use super::layout::piece_tag;
use super::tag_text;
use crate::recorded::{Recorded, parse_record};

/// LVM takes 1024; the rest is for the prefix, the key and the head of the piece.
const LONGEST_PIECE: usize = 896;
const CHECKSUM_LENGTH: usize = 8;
/// Not in the text: it is the name of the logical volume, or in the key.
const ID: &str = "id";

/// A record that tags can hold.
pub(super) trait TaggedRecord: Recorded {
    /// What most records have in common, as JSON: what is so is left out. To change it is to change the format.
    const IMPLIED: &'static str;
}

impl TaggedRecord for VolumeRecord {
    const IMPLIED: &'static str = r#"{
        "version": 1, "limits": {}, "parameters": {"provisioning": "thin", "mkfs_options": []},
        "ephemeral": false, "published": {}
    }"#;
}

impl TaggedRecord for SnapshotRecord {
    const IMPLIED: &'static str = r#"{"version": 1}"#;
}

impl TaggedRecord for GroupSnapshotRecord {
    const IMPLIED: &'static str = r#"{"version": 1}"#;
}

impl TaggedRecord for VolumeGroupRecord {
    const IMPLIED: &'static str = r#"{"version": 1, "members": []}"#;
}

/// The tags that hold the record, under that key.
pub(super) fn tags_of<R: TaggedRecord>(key: &str, record: &R) -> Result<Vec<String>> {
    let text = text_of(record).map_err(|error| {
        let writing = format!("write the record of {} {}", R::KIND, record.id());
        Error::failed(writing, Reason::of(error))
    })?;
    Ok(tags_of_text(key, record.id(), &text))
}

/// The same of a text in the characters of tags; [`joined`] reads it.
pub(super) fn tags_of_text(key: &str, id: &impl Display, text: &str) -> Vec<String> {
    let checksum = checksum(id, text);
    // All of it is ASCII.
    let pieces: Vec<&[u8]> = text.as_bytes().chunks(LONGEST_PIECE).collect();
    let tag = |(index, piece): (usize, &&[u8])| {
        let piece = String::from_utf8_lossy(piece);
        piece_tag(key, &format!("{index}/{}:{checksum}:{piece}", pieces.len()))
    };
    pieces.iter().enumerate().map(tag).collect()
}

/// The error says why the pieces are no record of `id`.
pub(super) fn read_record<R: TaggedRecord>(
    id: &R::Id,
    pieces: &[&str],
) -> std::result::Result<R, String> {
    let text = joined(id, pieces)?;
    let mut fields =
        tag_text::read(&text).map_err(|reason| format!("its record is malformed: {reason}"))?;
    let malformed = |error: serde_json::Error| format!("its record is malformed: {error}");
    add_implied(&mut fields, implied::<R>().map_err(malformed)?);
    fields.insert(ID.to_owned(), Value::String(id.to_string()));
    parse_record(id, &"record", &serde_json::to_vec(&fields).map_err(malformed)?)
}

fn checksum(id: &impl Display, text: &str) -> String {
    let mut digest = NameDigest::of_text(&format!("{id}\0{text}")).as_str().to_owned();
    digest.truncate(CHECKSUM_LENGTH);
    digest
}

struct Piece<'a> {
    index: usize,
    count: usize,
    checksum: &'a str,
    text: &'a str,
}

impl<'a> Piece<'a> {
    fn parse(piece: &'a str) -> Option<Self> {
        let (place, rest) = piece.split_once(':')?;
        let (index, count) = place.split_once('/')?;
        let (checksum, text) = rest.split_once(':')?;
        Some(Self { index: index.parse().ok()?, count: count.parse().ok()?, checksum, text })
    }
}

/// The error says why the pieces are no text that was written with this id.
pub(super) fn joined<'a>(
    id: &impl Display,
    pieces: &[&'a str],
) -> std::result::Result<String, String> {
    let parse = |piece: &'a str| {
        Piece::parse(piece).ok_or_else(|| format!("its tag {piece:?} is malformed"))
    };
    let mut parsed =
        pieces.iter().copied().map(parse).collect::<std::result::Result<Vec<_>, _>>()?;
    parsed.sort_by_key(|piece| piece.index);
    let text: String = parsed.iter().map(|piece| piece.text).collect();
    let sum = checksum(id, &text);
    let in_place = |(index, piece): (usize, &Piece<'_>)| {
        piece.index == index && piece.count == parsed.len() && piece.checksum == sum
    };
    if parsed.is_empty() || !parsed.iter().enumerate().all(in_place) {
        return Err(format!(
            "the {} tags of its record are not those that were written together for {id}",
            parsed.len()
        ));
    }
    Ok(text)
}

fn text_of<R: TaggedRecord>(record: &R) -> serde_json::Result<String> {
    let Value::Object(mut fields) = serde_json::to_value(record)? else {
        return Err(serde_json::Error::custom("a record is an object"));
    };
    fields.remove(ID);
    drop_nulls(&mut fields);
    drop_implied(&mut fields, &implied::<R>()?);
    Ok(tag_text::write(&fields))
}

fn implied<R: TaggedRecord>() -> serde_json::Result<Map<String, Value>> {
    serde_json::from_str(R::IMPLIED)
}

/// What is absent reads as `None`.
fn drop_nulls(fields: &mut Map<String, Value>) {
    fields.retain(|_, value| !value.is_null());
    for value in fields.values_mut() {
        drop_inner_nulls(value);
    }
}

fn drop_inner_nulls(value: &mut Value) {
    if let Value::Object(fields) = value {
        drop_nulls(fields);
    } else if let Value::Array(items) = value {
        items.iter_mut().for_each(drop_inner_nulls);
    }
}

/// Undone by [`add_implied`], as a record has all fields that are implied.
fn drop_implied(fields: &mut Map<String, Value>, implied: &Map<String, Value>) {
    fields.retain(|key, value| implied.get(key) != Some(value));
    for (key, value) in fields {
        if let (Value::Object(inner), Some(Value::Object(implied))) = (value, implied.get(key)) {
            drop_implied(inner, implied);
        }
    }
}

fn add_implied(fields: &mut Map<String, Value>, implied: Map<String, Value>) {
    for (key, implied) in implied {
        match (fields.get_mut(&key), implied) {
            (Some(Value::Object(inner)), Value::Object(implied)) => add_implied(inner, implied),
            (Some(_), _) => {}
            (None, implied) => {
                fields.insert(key, implied);
            }
        }
    }
}

#[cfg(test)]
mod tests;
