//! Do bytes hold anything?

const BLOCK: usize = 4096;

/// Compared in blocks, which takes a small part of the time that a look at each byte does.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    const ZEROES: [u8; BLOCK] = [0; BLOCK];
    bytes.chunks(BLOCK).all(|block| ZEROES.starts_with(block))
}

#[cfg(test)]
mod tests;
