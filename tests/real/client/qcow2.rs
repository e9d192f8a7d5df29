//! Images of QEMU become volumes with the same contents, byte for byte.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use orlop_sys::tool;
use orlop_tests::*;

use super::Terminal;

/// Two patterns, with holes between and after them.
fn raw_image(path: &str) {
    let file = File::create(path).unwrap();
    file.set_len(40 * MIB + 512).unwrap();
    Pattern::new(4).write_at(Path::new(path), MIB + 4096, 3 * MIB);
    file.write_all_at(&[5; 4096 + 512], 40 * MIB - 4096).unwrap();
}

fn qemu_img(words: &[&str]) {
    tool::run("qemu-img", words).unwrap();
}

/// The first bytes of the volume's device are those of the file, and the rest is zero.
fn assert_same(device: &str, raw: &str, volume_bytes: u64) {
    let length = std::fs::metadata(raw).unwrap().len();
    let (mut one, mut other) = (File::open(device).unwrap(), File::open(raw).unwrap());
    let (mut left, mut right) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut offset = 0;
    while offset < length {
        let part = usize::try_from((length - offset).min(1 << 16)).unwrap();
        one.read_exact(&mut left[..part]).unwrap();
        other.read_exact(&mut right[..part]).unwrap();
        assert!(left[..part] == right[..part], "they differ in the 64 KiB from {offset} on");
        offset += part as u64;
    }
    assert!(is_all_zero(Path::new(device), length, volume_bytes - length));
}

#[tokio::test(flavor = "multi_thread")]
async fn qcow2_images_of_every_kind_are_imported() {
    needs_root!();
    let at = Terminal::new().await;
    let (raw, image, device) = (at.path("raw"), at.path("image.qcow2"), at.path("device"));
    raw_image(&raw);
    for options in [
        &[][..],
        &["-c"],
        &["-o", "compat=0.10"],
        &["-o", "cluster_size=512"],
        &["-c", "-o", "cluster_size=2M"],
        &["-o", "preallocation=full"],
    ] {
        let convert = [&["convert", "-f", "raw", "-O", "qcow2"], options, &[&raw, &image]].concat();
        qemu_img(&convert);
        let said = at.json(&["volume", "import", &image, "disk"]);
        assert_eq!((&said["format"], &said["verified"]), (&"qcow2".into(), &true.into()), "{said}");
        assert_eq!(said["image_bytes"], 40 * MIB + 512, "{options:?}");
        assert!(said["written_bytes"].as_u64().unwrap() <= 8 * MIB, "{options:?}: {said}");
        at.ok(&["volume", "mount", "disk", &device, "--block", "--read-only"]);
        assert_same(&device, &raw, said["size_bytes"].as_u64().unwrap());
        at.ok(&["volume", "unmount", &device]);
        at.ok(&["volume", "delete", "disk", "--yes"]);
        std::fs::remove_file(&image).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filesystem_in_a_qcow2_image_can_be_mounted() {
    needs_root!();
    let at = Terminal::new().await;
    let (raw, image, target) = (at.path("raw"), at.path("image.qcow2"), at.path("mnt"));
    File::create(&raw).unwrap().set_len(64 * MIB).unwrap();
    tool::run("mkfs.ext4", ["-q", "-b", "4096", &raw]).unwrap();
    qemu_img(&["convert", "-c", "-f", "raw", "-O", "qcow2", &raw, &image]);
    let text = at.ok(&["volume", "import", &image, "disk"]);
    assert!(text.contains("image.qcow2 (qcow2) to volume disk"), "{text}");
    at.ok(&["volume", "mount", "disk", &target]);
    Pattern::new(6).write(&Path::new(&target).join("file"), MIB);
    at.ok(&["volume", "unmount", &target]);
    at.ok(&["volume", "delete", "disk", "--yes"]);
    // As the bytes that it is, on demand.
    let said = at.json(&["volume", "import", &image, "bytes", "--format", "raw"]);
    assert_eq!(said["image_bytes"], std::fs::metadata(&image).unwrap().len());
    at.ok(&["volume", "delete", "bytes", "--yes"]);
}

/// An image that names a file of this machine would otherwise show it to a workload.
#[tokio::test(flavor = "multi_thread")]
async fn images_that_need_other_files_or_keys_are_refused() {
    needs_root!();
    let at = Terminal::new().await;
    let (secret, image) = (at.path("secret"), at.path("image.qcow2"));
    std::fs::write(&secret, [7; 65536]).unwrap();
    let data_file = format!("data_file={secret},data_file_raw=on");
    for (words, why) in [
        (&["-b", &secret, "-F", "raw"][..], "backing file"),
        (&["-o", &data_file, "1M"], "another file"),
        (&["-o", "extended_l2=on,cluster_size=128k", "1M"], "subclusters"),
    ] {
        let _ = std::fs::remove_file(&image);
        let (options, size) = match words.last() {
            Some(&"1M") => (&words[..words.len() - 1], &["1M"][..]),
            _ => (words, &[][..]),
        };
        qemu_img(&[&["create", "-q", "-f", "qcow2"], options, &[&*image], size].concat());
        let said = at.fails(2, &["volume", "import", &image, "disk"]);
        assert!(said.contains(why), "{why}: {said}");
    }
    // As LUKS has it; to make a real one, qemu-img measures the machine, and fails if it is busy.
    let _ = std::fs::remove_file(&image);
    qemu_img(&["create", "-q", "-f", "qcow2", &image, "1M"]);
    let file = File::options().write(true).open(&image).unwrap();
    file.write_all_at(&2_u32.to_be_bytes(), 32).unwrap();
    let said = at.fails(2, &["volume", "import", &image, "disk"]);
    assert!(said.contains("encrypted"), "{said}");
    at.fails(2, &["volume", "import", &secret, "disk", "--format", "qcow2"]);
    assert_eq!(at.volumes(), 0);

    // A was its download interrupted, and one that says more than any pool has.
    let raw = at.path("raw");
    raw_image(&raw);
    qemu_img(&["convert", "-f", "raw", "-O", "qcow2", &raw, &image]);
    let length = std::fs::metadata(&image).unwrap().len();
    File::options().write(true).open(&image).unwrap().set_len(length - 2 * MIB).unwrap();
    let said = at.fails(1, &["volume", "import", &image, "disk"]);
    assert!(said.contains("was its download interrupted"), "{said}");
    at.ok(&["volume", "delete", "disk", "--yes"]);
    let _ = std::fs::remove_file(&image);
    qemu_img(&["create", "-q", "-f", "qcow2", &image, "900T"]);
    let said = at.fails(3, &["volume", "import", &image, "disk"]);
    assert!(said.contains("RESOURCE_EXHAUSTED") || said.contains("OUT_OF_RANGE"), "{said}");
    assert_eq!(at.volumes(), 0);
}
