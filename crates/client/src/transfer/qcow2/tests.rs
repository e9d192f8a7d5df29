#![allow(clippy::unwrap_used)]

use std::io::Write;

use miniz_oxide::deflate::compress_to_vec;

use super::*;

const CLUSTER: usize = 1 << 16;
const SIZE: u64 = 5 * 65_536 + 512;

/// Clusters: data, none, zero by its mark, compressed, none, and the beginning of one with data.
fn image() -> Vec<u8> {
    let mut file = vec![0; 5 * CLUSTER];
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &MAGIC);
    put(4, &3_u32.to_be_bytes());
    put(20, &16_u32.to_be_bytes());
    put(24, &SIZE.to_be_bytes());
    put(36, &1_u32.to_be_bytes());
    put(40, &(CLUSTER as u64).to_be_bytes());
    put(96, &4_u32.to_be_bytes());
    put(100, &112_u32.to_be_bytes());
    // The one table, and in it the clusters.
    put(CLUSTER, &((2 * CLUSTER as u64) | (1 << 63)).to_be_bytes());
    let packed = compress_to_vec(&pattern(3), 6);
    let sectors = (packed.len() as u64 - 1) / SECTOR;
    let compressed = IS_COMPRESSED | (sectors << 54) | (4 * CLUSTER as u64);
    let entries = [
        (3 * CLUSTER as u64) | (1 << 63),
        0,
        (3 * CLUSTER as u64) | 1,
        compressed,
        0,
        3 * CLUSTER as u64,
    ];
    for (index, entry) in entries.iter().enumerate() {
        put(2 * CLUSTER + 8 * index, &entry.to_be_bytes());
    }
    put(3 * CLUSTER, &pattern(0));
    put(4 * CLUSTER, &packed);
    // The file ends where the packed data does, within a sector.
    file.truncate(4 * CLUSTER + packed.len());
    file
}

fn pattern(seed: usize) -> Vec<u8> {
    (0..CLUSTER)
        .map(|index| u8::try_from((index * 7 + index / 251 + seed) % 256).unwrap())
        .collect()
}

fn opened(bytes: &[u8]) -> io::Result<Result<Image, Refusal>> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    Image::open(file)
}

/// All of the disk, in pieces of an odd size.
fn contents(image: &mut Image) -> io::Result<Vec<u8>> {
    let mut all = vec![0xaa; usize::try_from(image.length()).unwrap()];
    let mut offset = 0;
    for piece in all.chunks_mut(10_007) {
        image.read_exact_at(piece, offset)?;
        offset += as_u64(piece.len());
    }
    Ok(all)
}

#[test]
fn every_kind_of_cluster_is_read() {
    let mut image = opened(&image()).unwrap().unwrap();
    assert_eq!(image.length(), SIZE);
    let zero = vec![0; CLUSTER];
    let end = pattern(0)[..512].to_vec();
    let expected = [pattern(0), zero.clone(), zero.clone(), pattern(3), zero, end];
    assert!(contents(&mut image).unwrap() == expected.concat());
    let starts: Vec<_> = [0, 1, CLUSTER, 4 * CLUSTER, 5 * CLUSTER + 511]
        .iter()
        .map(|at| image.next_data(as_u64(*at)).unwrap())
        .collect();
    let at = |index: usize| Some(as_u64(index));
    assert_eq!(starts, [at(0), at(1), at(3 * CLUSTER), at(5 * CLUSTER), at(5 * CLUSTER + 511)]);
    assert_eq!(image.next_data(SIZE).unwrap(), None);
}

#[test]
fn what_names_other_files_or_is_unknown_is_refused() {
    let with = |at: usize, bytes: &[u8]| {
        let mut file = image();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        opened(&file).unwrap().err()
    };
    assert_eq!(with(8, &200_u64.to_be_bytes()), Some(Refusal::BackingFile));
    assert_eq!(with(32, &2_u32.to_be_bytes()), Some(Refusal::Encrypted));
    assert_eq!(with(72, &4_u64.to_be_bytes()), Some(Refusal::DataFile));
    assert_eq!(with(72, &2_u64.to_be_bytes()), Some(Refusal::Corrupt));
    assert_eq!(with(72, &16_u64.to_be_bytes()), Some(Refusal::Features));
    assert_eq!(with(72, &(1_u64 << 40).to_be_bytes()), Some(Refusal::Features));
    assert_eq!(with(4, &1_u32.to_be_bytes()), Some(Refusal::Version(1)));
    assert_eq!(with(0, b"QFJ"), Some(Refusal::OtherFormat));
    assert_eq!(with(20, &30_u32.to_be_bytes()), Some(Refusal::Nonsense));
    assert_eq!(with(24, &u64::MAX.to_be_bytes()), Some(Refusal::Size(u64::MAX)));
    assert_eq!(with(24, &0_u64.to_be_bytes()), Some(Refusal::Size(0)));
    // More tables than there are, and than there may be.
    assert_eq!(with(36, &0_u32.to_be_bytes()), Some(Refusal::Nonsense));
    let mut packed = image();
    packed[72..80].copy_from_slice(&8_u64.to_be_bytes());
    assert!(opened(&packed).unwrap().is_ok(), "deflate, said in so many words");
    packed[104] = 1;
    assert_eq!(opened(&packed).unwrap().err(), Some(Refusal::Features));
    assert_eq!(opened(b"QFI\xfb").unwrap().err(), Some(Refusal::Version(0)));
}

/// Whatever a byte of it says: an error, or some contents, and never a panic or much memory.
#[test]
fn a_damaged_image_does_no_harm() {
    let good = image();
    for at in (0..112).chain(CLUSTER..CLUSTER + 8).chain(2 * CLUSTER..2 * CLUSTER + 48) {
        for value in [0x00, 0x01, 0x40, 0x7f, 0xff] {
            let mut file = good.clone();
            file[at] = value;
            if let Ok(Ok(mut image)) = opened(&file)
                && image.length() < 1 << 20
            {
                let _ = contents(&mut image);
            }
        }
    }
    for length in [0, 3, 100, CLUSTER, CLUSTER + 4, 2 * CLUSTER + 8, 3 * CLUSTER, 4 * CLUSTER] {
        let read = opened(&good[..length]);
        let complete = read.ok().and_then(std::result::Result::ok).map(|mut it| contents(&mut it));
        assert!(!matches!(complete, Some(Ok(_))), "cut at {length}");
    }
}
