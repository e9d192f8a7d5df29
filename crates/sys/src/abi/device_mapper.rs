//! Messages to targets of device-mapper. Its structures are not in linux-raw-sys.

use std::os::fd::AsFd;

use rustix::io::{Errno, Result};
use rustix::ioctl::{Opcode, opcode};

use super::fill;

/// Without the NUL at the end.
const MAX_DEVICE_NAME: usize = NAME - 1;
/// Without the NUL at the end.
const MAX_MESSAGE: usize = MESSAGE - 1;
const NAME: usize = 128;
const UUID: usize = 129;
const MESSAGE: usize = 128;
/// What all kernels understand that have this ioctl.
const INTERFACE: [u32; 3] = [4, 0, 0];
const DM_TARGET_MSG: Opcode = opcode::read_write::<Header>(0xfd, 14);

#[repr(C)]
struct Header {
    version: [u32; 3],
    data_size: u32,
    data_start: u32,
    target_count: u32,
    open_count: i32,
    flags: u32,
    event: u32,
    padding: u32,
    device: u64,
    name: [u8; NAME],
    uuid: [u8; UUID],
    data: [u8; 7],
}

/// To the target at the start of a device.
#[repr(C)]
pub(crate) struct TargetMessage {
    header: Header,
    sector: u64,
    message: [u8; MESSAGE],
}

const HEADER_BYTES: u32 = 312;
const REQUEST_BYTES: u32 = HEADER_BYTES + 8 + 128;

const _: () = {
    assert!(size_of::<Header>() == 312);
    assert!(size_of::<TargetMessage>() == 312 + 8 + MESSAGE);
};

impl TargetMessage {
    /// `EINVAL` if either is empty, too long, or has a NUL in it.
    pub(crate) fn new(device: &str, message: &str) -> Result<Self> {
        let header = Header {
            version: INTERFACE,
            data_size: REQUEST_BYTES,
            data_start: HEADER_BYTES,
            target_count: 0,
            open_count: 0,
            flags: 0,
            event: 0,
            padding: 0,
            device: 0,
            name: terminated(device, MAX_DEVICE_NAME)?,
            uuid: [0; UUID],
            data: [0; 7],
        };
        Ok(Self { header, sector: 0, message: terminated(message, MAX_MESSAGE)? })
    }

    /// `control` is /dev/mapper/control. The kernel splits the message at blanks.
    pub(crate) fn send(mut self, control: impl AsFd) -> Result<()> {
        // It writes at most as many bytes as the header says there are.
        fill::<DM_TARGET_MSG, _>(control, &mut self)
    }
}

fn terminated<const BYTES: usize>(text: &str, longest: usize) -> Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    if text.is_empty() || text.len() > longest || text.contains('\0') {
        return Err(Errno::INVAL);
    }
    bytes.get_mut(..text.len()).ok_or(Errno::INVAL)?.copy_from_slice(text.as_bytes());
    Ok(bytes)
}
