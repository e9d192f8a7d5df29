//! A pool and the records of a run directory, as a build of some day wrote them.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use orlop_sys::{file, tool};

/// In records of a run directory, in place of the directory that the test had to itself.
const SCRATCH: &str = "@SCRATCH@";
/// Belongs to the boot in which the fixture was made.
const BOOT: &str = "@BOOT@";

pub(crate) struct Fixture {
    directory: PathBuf,
}

impl Fixture {
    pub(crate) fn named(name: &str) -> Self {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        Self { directory: here.join("fixtures").join(name) }
    }

    pub(crate) fn unpack_pool(&self, root: &Path) {
        fs::create_dir_all(root).unwrap();
        let archive = self.directory.join("pool.tar.gz");
        run_tar(&["--extract", "--gzip", "--same-permissions", "--xattrs"], &archive, root, &[]);
    }

    pub(crate) fn unpack_run_directory(&self, root: &Path, scratch: &Path) {
        let from = self.directory.join("run");
        for path in files_below(&from) {
            let text = fs::read_to_string(&path).unwrap();
            let text = text.replace(SCRATCH, scratch.to_str().unwrap()).replace(BOOT, &boot());
            let to = root.join(path.strip_prefix(&from).unwrap());
            file::ensure_private_directory(to.parent().unwrap().parent().unwrap()).unwrap();
            file::ensure_private_directory(to.parent().unwrap()).unwrap();
            fs::write(to, text).unwrap();
        }
    }
}

/// Used to make a fixture of a new format.
pub(crate) fn to_be_written() -> Option<PathBuf> {
    std::env::var_os("ORLOP_TEST_WRITE_FIXTURE").map(PathBuf::from)
}

pub(crate) fn write(directory: &Path, pool: &Path, run: &Path, scratch: &Path) {
    fs::create_dir_all(directory).unwrap();
    let archive = directory.join("pool.tar.gz");
    let how = ["--create", "--gzip", "--sparse", "--sort=name", "--xattrs"];
    run_tar(&how, &archive, pool, &["."]);
    for path in files_below(run).into_iter().filter(|path| path.file_name() != Some(LOCK.as_ref()))
    {
        let text = fs::read_to_string(&path).unwrap();
        let text = text.replace(scratch.to_str().unwrap(), SCRATCH).replace(&boot(), BOOT);
        let to = directory.join("run").join(path.strip_prefix(run).unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::write(to, text).unwrap();
    }
}

const LOCK: &str = "daemon.lock";

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim_end().to_owned()
}

fn run_tar(how: &[&str], archive: &Path, directory: &Path, names: &[&str]) {
    let words = how.iter().map(OsStr::new);
    let places = ["--file".as_ref(), archive.as_os_str(), "--directory".as_ref()];
    let names = names.iter().map(OsStr::new);
    tool::run("tar", words.chain(places).chain([directory.as_os_str()]).chain(names)).unwrap();
}

pub(crate) fn files_below(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root).unwrap_or_else(|error| panic!("{}: {error}", root.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(files_below(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}
