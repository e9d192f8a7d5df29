use super::*;

/// The check value of CRC-32C, which is inverted at the end.
#[test]
fn crc32c_matches_the_standard_vectors() {
    assert_eq!(!crc32c(b"123456789"), 0xE306_9283);
}

#[test]
fn renewed_superblock_differs_only_in_uuid_and_checksum() {
    let directory = orlop_tests::Scratch::new();
    let template = Template::new(&directory.join("template"), 64 << 20);
    // What mkfs wrote itself.
    let checksum = crc32c(&template.superblock[..CHECKSUM]);
    assert_eq!(checksum.to_le_bytes(), template.superblock[CHECKSUM..]);
    let (first, second) = (template.renewed(), template.renewed());
    assert_ne!(first[UUID..UUID + 16], second[UUID..UUID + 16]);
    assert_eq!(first[..UUID], template.superblock[..UUID]);
    assert_eq!(first[UUID + 16..CHECKSUM], template.superblock[UUID + 16..CHECKSUM]);
}
