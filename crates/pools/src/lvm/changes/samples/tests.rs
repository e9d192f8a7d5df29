use super::*;

#[test]
fn beginning_end_and_what_lies_between_are_looked_at() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for bytes in [1, PART - 1, PART, PART + 1, 64 << 20] {
        file.as_file().set_len(0).unwrap();
        file.as_file().set_len(bytes).unwrap();
        assert!(!holds_other_than_zeroes(file.path(), bytes).unwrap());
        for at in [0, bytes / 2, bytes - 1] {
            // A workload writes more than one byte.
            let length = (2 << 20).min(bytes - at);
            let written = vec![1; usize::try_from(length).unwrap()];
            file.as_file().write_all_at(&written, at).unwrap();
            assert!(holds_other_than_zeroes(file.path(), bytes).unwrap(), "{at} of {bytes}");
            let zeroes = vec![0; written.len()];
            file.as_file().write_all_at(&zeroes, at).unwrap();
        }
    }
}
