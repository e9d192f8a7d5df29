//! What the demo needs of the machine, asked for before anything is made.

use std::path::Path;

use orlop_model::Bytes;
use orlop_sys::{file, filesystem};

use super::MIB;
use super::failure::Failure;

const LOOP_CONTROL: &str = "/dev/loop-control";
/// Of a socket's path, with its final zero; the name below the directory takes some of it.
const LONGEST_PARENT: usize = 107 - "/orlop-demo.01234567/csi.sock".len();
/// Filesystems without data: logs, templates, and what the volumes of the group take.
const BESIDE_DATA: u64 = 512 * MIB;

pub(super) struct Requirements<'a> {
    pub(super) data: u64,
    pub(super) parent: &'a Path,
}

impl Requirements<'_> {
    pub(super) fn check(&self) -> Result<(), Failure> {
        if !rustix::process::geteuid().is_root() {
            return Err(Failure::missing(
                "the demo mounts filesystems and makes loop devices, and needs root for that; \
                 run it with sudo, or in a virtual machine",
            ));
        }
        if let Some(tool) = filesystem::missing_tool(&[filesystem::FsKind::Xfs]) {
            return Err(Failure::missing(format!(
                "{tool} is not installed, and the pool is an XFS image; install xfsprogs"
            )));
        }
        let control = std::fs::File::options().read(true).write(true).open(LOOP_CONTROL);
        if let Err(error) = control {
            return Err(Failure::missing(format!(
                "cannot make loop devices: {LOOP_CONTROL}: {error}; load the module with `modprobe loop`, or, in a \
                 container, start it with --privileged and the host's /dev"
            )));
        }
        if self.parent.as_os_str().len() > LONGEST_PARENT {
            return Err(Failure::missing(format!(
                "the path {} is too long for a socket below it (at most {LONGEST_PARENT} bytes); name another \
                 directory with --dir",
                self.parent.display()
            )));
        }
        self.check_space()
    }

    fn check_space(&self) -> Result<(), Failure> {
        let shown = self.parent.display();
        let space = file::space(self.parent);
        let free = space.map_err(Failure::cannot(format!("ask how much of {shown} is free")))?.free;
        // A quarter is overwritten and half of a clone is written, beside the data itself.
        let needed = self.data / 4 * 7 + BESIDE_DATA;
        if free >= needed {
            return Ok(());
        }
        Err(Failure::missing(format!(
            "{} is free in {shown}, and the demo needs {}; take less data with --size, or another directory with --dir",
            Bytes(free),
            Bytes(needed)
        )))
    }
}
