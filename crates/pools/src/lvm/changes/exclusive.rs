//! How many chunks only one thin device has.

use super::block::{Blocks, Counted, Read};
use super::tree::{Part, Walk};

/// Of the tree with the root `of`, beside all other trees. Devices share data by sharing what they were copied from, so a
/// chunk that two have is at the same place in both: only that place is looked at. `None`: more blocks than that would
/// have to be read.
pub(super) fn exclusive_chunks(
    blocks: &mut impl Blocks,
    of: u64,
    others: impl Iterator<Item = u64>,
    max_blocks: usize,
) -> Read<Option<u64>> {
    let mut blocks = Counted { blocks, count: 0 };
    let mut of = Walk::new(&mut blocks, of, 0)?;
    let mut beside = Vec::new();
    for other in others {
        if blocks.count >= max_blocks {
            return Ok(None);
        }
        beside.push(Walk::new(&mut blocks, other, 0)?);
    }
    let mut exclusive = 0;
    while let Some(part) = of.next() {
        if blocks.count >= max_blocks {
            return Ok(None);
        }
        beside.iter_mut().for_each(|other| other.pass_until(&part));
        let overlaps = |next: &Part| !part.is_before(next);
        if beside.iter().filter_map(Walk::next).any(|next| next.is_same(&part)) {
            of.pass();
            continue;
        }
        let is_higher = |other: &&mut Walk| {
            other.next().is_some_and(|next| overlaps(&next) && next.height > part.height)
        };
        if let Some(other) = beside.iter_mut().find(is_higher) {
            other.open(&mut blocks)?;
        } else if part.height > 0 {
            of.open(&mut blocks)?;
        } else {
            exclusive += 1;
            of.pass();
        }
    }
    Ok(Some(exclusive))
}

#[cfg(test)]
mod tests;
