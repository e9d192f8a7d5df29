//! Walking the trees of a thin pool's metadata.

use super::block::{Blocks, LeafValue, Mapping, MetadataError, Node, Read};

/// Far more than the deepest tree has: each level holds a hundred times as much as the one below.
const MAX_HEIGHT: u32 = 16;

/// What the tree has for the key.
pub(super) fn find<V: LeafValue>(blocks: &mut impl Blocks, root: u64, key: u64) -> Read<Option<V>> {
    let mut at = root;
    for _ in 0..MAX_HEIGHT {
        match Node::<V>::read(blocks, at)? {
            Node::Leaf(entries) => {
                return Ok(entries
                    .into_iter()
                    .find_map(|(of, value)| (of == key).then_some(value)));
            }
            Node::Internal(children) => {
                match children.into_iter().rev().find(|(from, _)| *from <= key) {
                    Some((_, child)) => at = child,
                    None => return Ok(None),
                }
            }
        }
    }
    Err(too_high(root))
}

/// All that the tree has. `None`: it has more nodes than that.
pub(super) fn entries<V: LeafValue>(
    blocks: &mut impl Blocks,
    root: u64,
    max_nodes: usize,
) -> Read<Option<Vec<(u64, V)>>> {
    let (mut pending, mut found) = (vec![root], Vec::new());
    for _ in 0..max_nodes {
        match pending.pop().map(|at| Node::<V>::read(blocks, at)).transpose()? {
            None => return Ok(Some(found)),
            Some(Node::Leaf(entries)) => found.extend(entries),
            Some(Node::Internal(children)) => {
                pending.extend(children.into_iter().rev().map(|(_, child)| child));
            }
        }
    }
    Ok(None)
}

fn too_high(root: u64) -> MetadataError {
    MetadataError::damaged(root, "is the root of a tree without end")
}

/// A part of a tree of mappings: keys from `from` up to `until`. Of height 0, it is a mapping, and `at` the chunk of
/// data; else `at` is the block of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) from: u64,
    until: u64,
    pub(super) height: u32,
    pub(super) at: u64,
}

impl Part {
    /// Both are the same mappings: what is in a block is the same for all that point to it.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.height == other.height
            && self.at == other.at
            && (self.height > 0 || self.from == other.from)
    }

    pub(super) fn is_before(&self, other: &Self) -> bool {
        self.until <= other.from
    }
}

/// The mappings of a thin device from a key on. A part of the tree is read only when it is opened, so that one which is
/// known already costs nothing.
#[derive(Debug)]
pub(super) struct Walk {
    from: u64,
    /// The next one is the last. No more than the children of one node for each level.
    pending: Vec<Part>,
}

impl Walk {
    /// Of a device that has none.
    pub(super) fn nothing() -> Self {
        Self { from: 0, pending: Vec::new() }
    }

    /// Reads one node of each level, to know how many there are.
    pub(super) fn new(blocks: &mut impl Blocks, root: u64, from: u64) -> Read<Self> {
        let mut at = root;
        for height in 1..=MAX_HEIGHT {
            match Node::<Mapping>::read(blocks, at)? {
                Node::Leaf(_) => {
                    let all = Part { from: 0, until: u64::MAX, height, at: root };
                    return Ok(Self { from, pending: vec![all] });
                }
                Node::Internal(children) => match children.first() {
                    Some((_, child)) => at = *child,
                    None => return Err(MetadataError::damaged(at, "has no children")),
                },
            }
        }
        Err(too_high(root))
    }

    /// What is not passed yet begins with it.
    pub(super) fn next(&self) -> Option<Part> {
        self.pending.last().copied()
    }

    pub(super) fn pass(&mut self) {
        self.pending.pop();
    }

    /// Passes what lies before the part.
    pub(super) fn pass_until(&mut self, part: &Part) {
        while self.next().is_some_and(|next| next.is_before(part)) {
            self.pass();
        }
    }

    /// Puts what is in the next part, a node, in its place.
    pub(super) fn open(&mut self, blocks: &mut impl Blocks) -> Read<()> {
        let Some(part) = self.pending.pop() else { return Ok(()) };
        let children = match (Node::<Mapping>::read(blocks, part.at)?, part.height) {
            (Node::Leaf(mappings), 1) => {
                mappings.into_iter().map(|(key, Mapping(chunk))| (key, chunk)).collect()
            }
            (Node::Internal(children), 2..) if !children.is_empty() => children,
            (Node::Leaf(_) | Node::Internal(_), _) => {
                return Err(MetadataError::damaged(part.at, "is at a wrong height of its tree"));
            }
        };
        let mut until = part.until;
        for (key, at) in children.into_iter().rev() {
            if key < part.from || key >= part.until {
                return Err(MetadataError::damaged(part.at, "has keys of another node"));
            }
            let height = part.height - 1;
            let child =
                Part { from: key, until: if height == 0 { key + 1 } else { until }, height, at };
            if child.until > self.from {
                self.pending.push(child);
            }
            until = key;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
