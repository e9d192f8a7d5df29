//! Writes tar archives: POSIX ustar, regular files only, not compressed.

const BLOCK: usize = 512;
/// The size of the name field.
const LONGEST_NAME: usize = 100;
/// Only their owner may read the files, also when they are unpacked.
const MODE: u64 = 0o600;

/// Files of one archive, one after another.
pub(super) struct Archive {
    bytes: Vec<u8>,
    /// In seconds since 1970; the same for all of them.
    time: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("its name has more than {LONGEST_NAME} bytes: {0}")]
pub(super) struct NameTooLong(String);

impl Archive {
    pub(super) fn new(time: u64) -> Self {
        Self { bytes: Vec::new(), time }
    }

    pub(super) fn add(&mut self, name: &str, contents: &[u8]) -> Result<(), NameTooLong> {
        if name.len() > LONGEST_NAME {
            return Err(NameTooLong(name.to_owned()));
        }
        self.bytes.extend(header(name, contents.len(), self.time));
        self.bytes.extend(contents);
        self.bytes.resize(self.bytes.len().next_multiple_of(BLOCK), 0);
        Ok(())
    }

    /// Appends the two blocks that end an archive, without which it counts as truncated.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 2 * BLOCK, 0);
        self.bytes
    }
}

fn header(name: &str, size: usize, time: u64) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    put(&mut header, 0, name.as_bytes());
    put(&mut header, 100, &octal::<8>(MODE));
    put(&mut header, 108, &octal::<8>(0));
    put(&mut header, 116, &octal::<8>(0));
    put(&mut header, 124, &octal::<12>(u64::try_from(size).unwrap_or(u64::MAX)));
    put(&mut header, 136, &octal::<12>(time));
    // The checksum is computed with spaces in its own field.
    put(&mut header, 148, b"        ");
    put(&mut header, 156, b"0");
    put(&mut header, 257, b"ustar\x0000");
    put(&mut header, 265, b"root");
    put(&mut header, 297, b"root");
    let sum = header.iter().map(|byte| u64::from(*byte)).sum();
    put(&mut header, 148, &octal::<7>(sum));
    header
}

fn put(header: &mut [u8; BLOCK], at: usize, field: &[u8]) {
    if let Some(place) = header.get_mut(at..at + field.len()) {
        place.copy_from_slice(field);
    }
}

/// Octal digits with leading zeroes and a final NUL, as wide as the field.
fn octal<const WIDTH: usize>(number: u64) -> [u8; WIDTH] {
    let mut field = [0; WIDTH];
    let mut left = number;
    for digit in field.iter_mut().rev().skip(1) {
        *digit = b'0' + u8::try_from(left % 8).unwrap_or(0);
        left /= 8;
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_sums_are_as_tar_wants_them() {
        let mut archive = Archive::new(1_700_000_000);
        archive.add("dir/name.txt", b"hello").unwrap();
        archive.add("empty", b"").unwrap();
        assert!(archive.add(&"x".repeat(101), b"").is_err());
        let bytes = archive.finish();
        assert_eq!(bytes.len(), BLOCK * (2 + 1 + 2));
        assert_eq!(&bytes[..12], b"dir/name.txt");
        assert_eq!(&bytes[124..136], b"00000000005\0");
        assert_eq!(&bytes[BLOCK..BLOCK + 6], b"hello\0");
        assert!(bytes[bytes.len() - 2 * BLOCK..].iter().all(|byte| *byte == 0));
        let sum: u64 = bytes[..BLOCK]
            .iter()
            .enumerate()
            .map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u64::from(*byte) })
            .sum();
        let said = std::str::from_utf8(&bytes[148..154]).unwrap();
        assert_eq!(u64::from_str_radix(said, 8).unwrap(), sum);
    }
}
