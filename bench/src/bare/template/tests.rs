use super::*;

/// The check value of CRC-32C, which is inverted at the end.
#[test]
fn checksums_are_those_of_the_standard() {
    assert_eq!(!crc32c(b"123456789"), 0xE306_9283);
}

#[test]
fn a_renewed_superblock_keeps_all_but_its_uuid() {
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
