use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    file
}

#[test]
fn any_range_equals_that_part_of_the_whole() {
    let whole = Pattern::new(7).bytes(0, 3 * CHUNK);
    let part = Pattern::new(7).bytes(8192, 5000);
    assert_eq!(part, whole[8192..8192 + 5000]);
    assert_ne!(Pattern::new(8).bytes(8192, 5000), part);
}

#[test]
fn one_wrong_bit_is_noticed() {
    let length = 2 * CHUNK + 100;
    let mut bytes = Pattern::new(1).bytes(0, length);
    let right = file(&bytes);
    bytes[CHUNK + 17] ^= 1;
    let wrong = file(&bytes);
    let length = u64::try_from(length).unwrap();
    Pattern::new(1).check(right.path(), length);
    let checked = || Pattern::new(1).check(wrong.path(), length);
    assert!(catch_unwind(AssertUnwindSafe(checked)).is_err());
    assert_ne!(fingerprint(right.path()), fingerprint(wrong.path()));
}

#[test]
fn fingerprints_distinguish_lengths_of_zeros() {
    let prints = [0, 1, CHUNK, CHUNK + 1, 2 * CHUNK]
        .map(|length| fingerprint(file(&vec![0; length]).path()));
    for (index, print) in prints.iter().enumerate() {
        assert!(!prints[..index].contains(print), "number {index}");
    }
}
