//! Reads qcow2 images, QEMU's disk format. Images are untrusted: only the file itself is read, images that refer to other
//! files are refused, and every number in the file is checked before it is used.

mod header;

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use miniz_oxide::inflate::decompress_slice_iter_to_slice;

pub(super) use header::{Header, MAGIC, Refusal};

/// Where a table or a cluster begins in the file.
const OFFSET_BITS: u64 = 0x00ff_ffff_ffff_fe00;
const IS_COMPRESSED: u64 = 1 << 62;
const IS_ZERO: u64 = 1;
const SECTOR: u64 = 512;

pub(super) struct Image {
    file: File,
    file_length: u64,
    header: Header,
    /// Where the tables of clusters begin; 0 for those that are all zero.
    tables: Vec<u64>,
    /// The table that was read last, with its index.
    table: Option<(u64, Vec<u64>)>,
    /// The compressed cluster that was read last, with its index.
    unpacked: Option<(u64, Vec<u8>)>,
}

enum Cluster {
    Zero,
    At(u64),
    Compressed { offset: u64, length: u64 },
}

impl Image {
    pub(super) fn open(mut file: File) -> io::Result<Result<Self, Refusal>> {
        let file_length = file.seek(SeekFrom::End(0))?;
        let header = match Header::read(&file)? {
            Ok(header) => header,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let mut image =
            Self { file, file_length, header, tables: Vec::new(), table: None, unpacked: None };
        image.tables = image.read_table(image.header.tables_offset, image.header.table_count())?;
        Ok(Ok(image))
    }

    /// Of the disk, not of the file.
    pub(super) fn length(&self) -> u64 {
        self.header.size
    }

    pub(super) fn read_exact_at(&mut self, mut part: &mut [u8], mut offset: u64) -> io::Result<()> {
        let cluster = self.header.cluster();
        while !part.is_empty() {
            let within = offset % cluster;
            let length = usize::try_from(cluster - within).unwrap_or(part.len()).min(part.len());
            let (first, rest) = part.split_at_mut(length);
            self.read_cluster(offset / cluster, within, first)?;
            offset += as_u64(length);
            part = rest;
        }
        Ok(())
    }

    /// The offset of the next data, from `offset` on: everything before it is zero.
    pub(super) fn next_data(&mut self, offset: u64) -> io::Result<Option<u64>> {
        let (cluster, by_table) = (self.header.cluster(), self.header.clusters_of_table());
        let mut index = offset / cluster;
        while index.saturating_mul(cluster) < self.header.size {
            let table = usize::try_from(index / by_table).unwrap_or(usize::MAX);
            if self.tables.get(table).is_none_or(|offset| *offset == 0) {
                index = (index / by_table + 1) * by_table;
            } else if matches!(self.cluster(index)?, Cluster::Zero) {
                index += 1;
            } else {
                return Ok(Some(offset.max(index * cluster)).filter(|at| *at < self.header.size));
            }
        }
        Ok(None)
    }

    fn read_cluster(&mut self, index: u64, within: u64, part: &mut [u8]) -> io::Result<()> {
        match self.cluster(index)? {
            Cluster::Zero => part.fill(0),
            Cluster::At(offset) => {
                if offset >= self.file_length {
                    return Err(damaged(
                        "it is shorter than its header says; was its download interrupted?",
                    ));
                }
                self.read_padded(offset.saturating_add(within), part)?;
            }
            Cluster::Compressed { offset, length } => {
                if self.unpacked.as_ref().is_none_or(|(unpacked, _)| *unpacked != index) {
                    self.unpacked = Some((index, self.unpack(offset, length)?));
                }
                let start = usize::try_from(within).unwrap_or(usize::MAX);
                let found = self.unpacked.as_ref().and_then(|(_, bytes)| bytes.get(start..));
                let found = found.and_then(|bytes| bytes.get(..part.len()));
                part.copy_from_slice(found.ok_or_else(|| damaged("a cluster is too short"))?);
            }
        }
        Ok(())
    }

    /// The file may end within its last cluster; the missing part is zero.
    fn read_padded(&self, mut offset: u64, mut part: &mut [u8]) -> io::Result<()> {
        while !part.is_empty() {
            match self.file.read_at(part, offset) {
                Ok(0) => {
                    part.fill(0);
                    return Ok(());
                }
                Ok(read) => {
                    part = &mut part[read..];
                    offset = offset.saturating_add(as_u64(read));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn unpack(&self, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        if offset >= self.file_length {
            return Err(damaged(
                "it is shorter than its header says; was its download interrupted?",
            ));
        }
        // At most two clusters, by the bits that the format has for it.
        let mut packed = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        self.read_padded(offset, &mut packed)?;
        let size = usize::try_from(self.header.cluster()).map_err(io::Error::other)?;
        let mut bytes = vec![0; size];
        // Without the header of zlib, and followed by what fills the last sector.
        let unpacked = decompress_slice_iter_to_slice(
            &mut bytes,
            std::iter::once(packed.as_slice()),
            false,
            false,
        );
        match unpacked {
            Ok(unpacked) if unpacked == size => Ok(bytes),
            Ok(_) | Err(_) => Err(damaged("a compressed cluster cannot be unpacked")),
        }
    }

    fn cluster(&mut self, index: u64) -> io::Result<Cluster> {
        let by_table = self.header.clusters_of_table();
        let table = index / by_table;
        let at = usize::try_from(table).unwrap_or(usize::MAX);
        let offset = self.tables.get(at).copied().unwrap_or(0);
        if offset == 0 {
            return Ok(Cluster::Zero);
        }
        if self.table.as_ref().is_none_or(|(read, _)| *read != table) {
            self.table = Some((table, self.read_table(offset, by_table)?));
        }
        let within = usize::try_from(index % by_table).unwrap_or(usize::MAX);
        let entry = self.table.as_ref().and_then(|(_, entries)| entries.get(within));
        Ok(self.header.cluster_of(entry.copied().unwrap_or(0)))
    }

    fn read_table(&self, offset: u64, count: u64) -> io::Result<Vec<u64>> {
        let offset = offset & OFFSET_BITS;
        let length = count.saturating_mul(8);
        let is_inside =
            offset.checked_add(length).is_some_and(|end| offset > 0 && end <= self.file_length);
        if !is_inside && count > 0 {
            return Err(damaged("a table lies beyond its end; was its download interrupted?"));
        }
        let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut bytes, offset)?;
        let (entries, _) = bytes.as_chunks::<8>();
        Ok(entries.iter().map(|entry| u64::from_be_bytes(*entry)).collect())
    }
}

impl Header {
    fn cluster_of(&self, entry: u64) -> Cluster {
        if entry & IS_COMPRESSED != 0 {
            // The upper bits say how many sectors there are beside the first.
            let bits = 62 - (self.cluster_bits - 8);
            let offset = entry & ((1 << bits) - 1);
            let sectors = ((entry & (IS_COMPRESSED - 1)) >> bits) + 1;
            return Cluster::Compressed { offset, length: sectors * SECTOR - offset % SECTOR };
        }
        let offset = entry & OFFSET_BITS;
        match offset == 0 || (self.version >= 3 && entry & IS_ZERO != 0) {
            true => Cluster::Zero,
            false => Cluster::At(offset),
        }
    }
}

fn damaged(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the qcow2 image is damaged: {why}"))
}

fn as_u64(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
