//! On thin pools of real LVM.

mod disks;
mod killed;
mod restart;

use orlop_model::Catalogue;

use super::*;
use crate::lvm::testbed::{MIB, Testbed};

fn refusal(bed: &Testbed, create: bool) -> String {
    LvmPool::open(bed.config(create)).unwrap_err().to_string()
}

#[test]
fn thin_pool_becomes_a_pool_once_and_keeps_its_id() {
    let Some(bed) = Testbed::with_devices(1) else { return };
    assert!(refusal(&bed, false).contains("has no thin pool tp"));
    assert!(LvmPool::id_of(&bed.config(false)).is_err());
    assert_eq!(LvmPool::id_of(&bed.config(true)).unwrap(), None, "it would be made");
    bed.create_thin_pool("tp", 64 * MIB);
    assert!(refusal(&bed, false).contains("does not allow a new one"));
    let id = LvmPool::open(bed.config(true)).unwrap().info.id.clone();
    assert_eq!(LvmPool::id_of(&bed.config(false)).unwrap().as_ref(), Some(&id));
    let opened = LvmPool::open(bed.config(false)).unwrap();
    assert_eq!(opened.info.id, id);
    assert_eq!(opened.catalogue.volumes(None, 0).unwrap(), []);
    assert!(refusal(&bed, false).contains("another process uses this pool"));

    let lv = opened.lvm.group().lv(&"tp");
    opened.close();
    bed.run("lvchange", &["--addtag", "orlop1:pool:89abcdef", &lv]);
    assert!(refusal(&bed, true).contains("remove the wrong tag"));
    bed.run("lvchange", &["--deltag", "orlop1:pool:89abcdef", &lv]);

    // The header is lost while there are volumes.
    let volume = format!("v-{}-0123456789abcdef0123456789abcdef", id);
    let create = ["-an", "--virtualsize", "64m", "--thinpool", "tp", "--name", &volume];
    let create = [&create[..], &["--addtag", "orlop1:whole", &bed.group]].concat();
    bed.run("lvcreate", &create);
    let header = pool_tag(&id);
    bed.run("lvchange", &["--deltag", &header, &lv]);
    assert!(refusal(&bed, true).contains(&format!("--addtag {header} {lv}")));
    bed.run("lvchange", &["--addtag", &header, &lv]);
    LvmPool::open(bed.config(false)).unwrap();
}

#[test]
fn thin_pool_that_does_not_zero_is_refused() {
    let Some(bed) = Testbed::with_devices(1) else { return };
    bed.create_thin_pool("tp", 64 * MIB);
    let lv = bed.lvm().group().lv(&"tp");
    bed.run("lvchange", &["--zero", "n", &lv]);
    assert!(refusal(&bed, true).contains("--zero y"));
    bed.run("lvchange", &["--zero", "y", &lv]);
    LvmPool::open(bed.config(true)).unwrap();
}

#[test]
fn thin_pool_in_the_place_of_one_that_was_renamed_is_refused() {
    let Some(bed) = Testbed::with_devices(1) else { return };
    bed.create_thin_pool("tp", 64 * MIB);
    let id = LvmPool::open(bed.config(true)).unwrap().info.id.clone();
    bed.run("lvrename", &[&bed.group, "tp", "elsewhere"]);
    bed.create_thin_pool("tp", 64 * MIB);
    assert!(refusal(&bed, true).contains("lvrename"));
    bed.run("lvremove", &[&bed.lvm().group().lv(&"tp")]);
    bed.run("lvrename", &[&bed.group, "elsewhere", "tp"]);
    assert_eq!(LvmPool::open(bed.config(true)).unwrap().info.id, id);
}
