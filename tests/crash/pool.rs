//! What the volumes of a walk are in: a pool of each kind, with one face.

use std::path::{Path, PathBuf};

use orlop_sys::file::allocated_bytes;
use orlop_sys::filesystem::{FsKind, Signature, probe};
use orlop_tests::{
    Client, Daemon, GIB, Launch, LvmSize, PoolFs, TestLvm, TestPool, mapped_devices,
};

const SIZE: u64 = 16 * GIB;
const PASSPHRASE: &str = "of all volumes of a walk";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Image(PoolFs),
    Lvm,
    /// An image pool of which every volume is encrypted.
    Encrypted(PoolFs),
}

pub(crate) enum Pool {
    Image(TestPool),
    Encrypted(TestPool),
    Lvm(TestLvm),
}

impl Pool {
    /// With all that is written to it in memory.
    pub(crate) fn new(kind: Kind) -> Self {
        match kind {
            Kind::Image(fs) => Self::Image(TestPool::in_memory(fs, SIZE)),
            Kind::Encrypted(fs) => Self::Encrypted(TestPool::in_memory(fs, SIZE)),
            Kind::Lvm => Self::Lvm(TestLvm::in_memory(LvmSize { thin: SIZE, free: SIZE / 4 })),
        }
    }

    pub(crate) fn memory(&self) -> PathBuf {
        match self {
            Self::Image(pool) | Self::Encrypted(pool) => pool.memory(),
            Self::Lvm(group) => group.memory(),
        }
    }

    pub(crate) fn launch(&self) -> Launch {
        let launch = match self {
            Self::Image(pool) | Self::Encrypted(pool) => Launch::on(pool),
            Self::Lvm(group) => group.launch(),
        };
        in_memory(launch, &self.memory())
    }

    pub(crate) fn client(&self, daemon: &Daemon) -> Client {
        match self {
            Self::Image(_) | Self::Lvm(_) => daemon.client(),
            Self::Encrypted(_) => daemon.client().encrypting(PASSPHRASE),
        }
    }

    /// Volumes, snapshots and groups, and what is left of others.
    pub(crate) fn objects(&self) -> Vec<String> {
        match self {
            Self::Image(pool) => files(pool),
            Self::Encrypted(pool) => {
                let of_pool = format!("-v-{}-", pool_id(pool));
                let devices = mapped_devices().into_iter().filter(|name| name.contains(&of_pool));
                let devices = devices.map(|name| format!("device {name}"));
                files(pool).into_iter().chain(devices).collect()
            }
            Self::Lvm(group) => group.objects(),
        }
    }

    /// The volume that was created has this size, and no filesystem but what it was born with.
    pub(crate) fn assert_stored(&self, id: &str, bytes: u64, asked_for_ext4: bool) {
        match self {
            Self::Image(_) => {
                let data = self.volume_data(id);
                assert_eq!(std::fs::metadata(&data).expect("the volume's data").len(), bytes);
                let formatted = matches!(
                    probe(&data).expect("probe"),
                    Signature::Filesystem { kind: FsKind::Ext4, needs_check: false, .. }
                );
                assert_eq!(formatted, asked_for_ext4);
            }
            // With a header beside what the volume shows.
            Self::Encrypted(_) => {
                let data = std::fs::metadata(self.volume_data(id)).expect("the volume's data");
                assert!(data.len() >= bytes, "{} bytes", data.len());
            }
            Self::Lvm(group) => assert_eq!(group.lv_bytes(id), bytes),
        }
    }

    /// For a reader of changed blocks.
    pub(crate) fn has_reserved_metadata(&self) -> bool {
        match self {
            Self::Image(_) | Self::Encrypted(_) => false,
            Self::Lvm(group) => group.has_reserved_metadata(),
        }
    }

    /// The file of a volume in an image pool.
    pub(crate) fn volume_data(&self, id: &str) -> PathBuf {
        match self {
            Self::Image(pool) | Self::Encrypted(pool) => pool.volume_data(id),
            Self::Lvm(_) => panic!("{id} is no file"),
        }
    }

    /// What the volume takes; `None` where only the pool as a whole knows.
    pub(crate) fn stored_bytes(&self, id: &str) -> Option<u64> {
        match self {
            Self::Image(_) | Self::Encrypted(_) => {
                Some(allocated_bytes(&self.volume_data(id)).expect("the data"))
            }
            Self::Lvm(_) => None,
        }
    }
}

fn files(pool: &TestPool) -> Vec<String> {
    let directories = ["volumes", "snapshots", "groups", "group-snapshots", "staging", "trash"];
    let entries = |directory| {
        let names = pool.entries(directory).into_iter();
        names.map(move |name| format!("{directory}/{name}"))
    };
    directories.into_iter().flat_map(entries).collect()
}

fn pool_id(pool: &TestPool) -> String {
    let header = std::fs::read(pool.path.join("orlop.pool")).expect("read the pool's header");
    let header: serde_json::Value = serde_json::from_slice(&header).expect("JSON");
    header["id"].as_str().expect("the pool's id").to_owned()
}

/// With all that the daemon writes in memory, as the pool is.
pub(crate) fn in_memory(launch: Launch, memory: &Path) -> Launch {
    launch
        .env("ORLOP_RUN_DIR", memory.join("run"))
        .env("ORLOP_LOG", "info")
        // As quick as cryptsetup allows.
        .env("ORLOP_ENCRYPTION_KDF", "pbkdf2:1000")
}
