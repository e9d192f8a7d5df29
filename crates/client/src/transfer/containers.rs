//! Formats that hold a disk and are not one: copied byte by byte, they would make a volume that no program can use.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Each format with where its mark is.
const OF_VIRTUAL_MACHINES: [(&str, u64, &[u8]); 8] = [
    ("VMDK", 0, b"KDMV"),
    ("VMDK", 0, b"COWD"),
    ("VMDK", 0, b"# Disk DescriptorFile"),
    ("VDI", 0x40, b"\x7f\x10\xda\xbe"),
    ("VHDX", 0, b"vhdxfile"),
    ("VHD", 0, VHD_MARK),
    ("QED", 0, b"QED\0"),
    ("Parallels", 0, b"WithoutFreeSpace"),
];
const VHD_MARK: &[u8] = b"conectix";
/// A VHD of fixed size is the disk with this much behind it.
const VHD_FOOTER: i64 = 512;
/// Each format with the program that unpacks it to standard output.
const PACKED: [(&str, &[u8], &str); 4] = [
    ("gzip", b"\x1f\x8b\x08", "zcat"),
    ("xz", b"\xfd7zXZ\0", "xzcat"),
    ("zstd", b"\x28\xb5\x2f\xfd", "zstdcat"),
    ("bzip2", b"BZh", "bzcat"),
];

/// Why this file is not copied as it is, and what to do.
pub(super) fn refusal(file: &File, path: &Path) -> Option<String> {
    let has = |at: u64, mark: &[u8]| {
        let mut found = vec![0; mark.len()];
        file.read_exact_at(&mut found, at).is_ok() && found == mark
    };
    let as_it_is = "; --format raw imports the bytes of the file as they are";
    let path = path.display();
    let of_machine = OF_VIRTUAL_MACHINES.iter().find(|(_, at, mark)| has(*at, mark));
    let of_machine =
        of_machine.map(|(name, ..)| *name).or_else(|| has_footer(file).then_some("VHD"));
    if let Some(name) = of_machine {
        return Some(format!(
            "it is a {name} image, which holds the disk in another form; run `qemu-img convert -O raw {path} {path}.raw`, and \
             import the result{as_it_is}"
        ));
    }
    let (name, _, program) = PACKED.iter().find(|(_, mark, _)| has(0, mark))?;
    Some(format!(
        "it is compressed by {name}; run `{program} {path} >{path}.raw`, and import the result{as_it_is}"
    ))
}

fn has_footer(mut file: &File) -> bool {
    let mut found = [0; VHD_MARK.len()];
    file.seek(SeekFrom::End(-VHD_FOOTER)).is_ok()
        && file.read_exact(&mut found).is_ok()
        && found == VHD_MARK
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn refusal_of(pieces: &[(u64, &[u8])]) -> Option<String> {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        for (at, bytes) in pieces {
            file.write_all_at(bytes, *at).unwrap();
        }
        refusal(&file, Path::new("/d/disk"))
    }

    #[test]
    fn files_that_hold_a_disk_are_not_copied_as_one() {
        for (name, at, mark) in OF_VIRTUAL_MACHINES {
            let said = refusal_of(&[(at, mark)]).unwrap();
            assert!(
                said.contains(name) && said.contains("qemu-img convert -O raw /d/disk "),
                "{said}"
            );
        }
        let said = refusal_of(&[(8192 - 512, VHD_MARK)]).unwrap();
        assert!(said.contains("VHD"), "{said}");
        for (name, mark, program) in PACKED {
            let said = refusal_of(&[(0, mark)]).unwrap();
            assert!(said.contains(name) && said.contains(program), "{said}");
        }
        let disks: [(u64, &[u8]); 4] =
            [(0, b""), (0, b"XFSB"), (510, b"\x55\xaa"), (1024, b"KDMV")];
        for disk in disks {
            assert_eq!(refusal_of(&[disk]), None, "{disk:?}");
        }
    }
}
