//! What a process has from the program that started it, whatever that is.

use rustix::fs::Mode;
use rustix::io::Result;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};

use crate::abi::take_signals;

/// Makes usable what this process cannot work with. With SIGCHLD ignored, the kernel does not tell how a
/// program ended; a signal that is blocked stops nothing; and a file that is made for its owner has to
/// be one that its owner can use. Files are made as long as the supervisor allows, as they are volumes. Before there
/// is a second thread.
pub fn mend() -> Result<()> {
    let file_size = getrlimit(Resource::Fsize);
    if file_size.current != file_size.maximum {
        setrlimit(Resource::Fsize, Rlimit { current: file_size.maximum, ..file_size })?;
    }
    let inherited = umask(Mode::RWXG | Mode::RWXO);
    umask(inherited - Mode::RWXU);
    take_signals()
}
