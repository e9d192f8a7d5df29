//! Pools, the run directory and sockets must not overlap, whatever the paths are that lead to them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use orlop_sys::mounts::{self, BindAccess};
use orlop_tests::*;

use crate::daemon::misconfigured::{refused, refused_by_check};

fn two_pools(pool: &TestPool, first: &Path, second: &Path) -> Launch {
    let settings = pool.scratch().join("orlop.toml");
    let table = |name, path: &Path| format!("[[pool]]\nname='{name}'\npath='{}'\n", path.display());
    fs::write(&settings, table("a", first) + &table("b", second)).unwrap();
    Launch::on(pool).without_env("ORLOP_POOL").env("ORLOP_CONFIG", &settings)
}

/// Refused in either order, with the names and the paths of both.
#[track_caller]
fn refused_together(pool: &TestPool, one: &Path, other: &Path) {
    for (first, second) in [(one, other), (other, one)] {
        let launch = two_pools(pool, first, second);
        refused(&launch, "pool.path of pool \"b\"");
        let reason = refused_by_check(&launch, "pool a at ");
        for path in [first, second] {
            assert!(reason.contains(path.to_str().unwrap()), "{path:?}: {reason}");
        }
    }
}

#[test]
fn a_pool_inside_another_is_refused() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    for inner in ["inner", "volumes/inner"].map(|name| pool.path.join(name)) {
        refused_together(&pool, &pool.path, &inner);
        fs::create_dir_all(&inner).unwrap();
        refused_together(&pool, &pool.path, &inner);
        fs::remove_dir(&inner).unwrap();
    }
}

#[test]
fn one_directory_by_two_paths_is_refused() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let scratch = pool.scratch();
    let name = pool.path.file_name().unwrap();
    let (link, parent) = (scratch.join("link"), scratch.join("parent"));
    symlink(&pool.path, &link).unwrap();
    symlink(pool.path.parent().unwrap(), &parent).unwrap();
    let roundabout = pool.path.join("..").join(name);
    for path in [roundabout, link.clone(), parent.join(name), link.join("inner")] {
        refused_together(&pool, &pool.path, &path);
    }
    // Also what is still to be made.
    refused_together(&pool, &scratch.join("new"), &scratch.join("no/../new"));
    refused_together(&pool, &pool.path.join("new"), &link.join("new/inner"));
}

/// Unmounted when it is dropped, also by a test that fails.
struct Bound(PathBuf);

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = mounts::ensure_unmounted(&self.0);
    }
}

#[test]
fn a_bind_mount_of_a_pool_is_refused() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let bound = Bound(pool.scratch().ensure_dir("bound"));
    mounts::bind(&pool.path, &bound.0, BindAccess::ReadWrite).unwrap();
    refused_together(&pool, &pool.path, &bound.0);
    refused_together(&pool, &pool.path, &bound.0.join("inner"));
    let run_dir = bound.0.join("run");
    refused(&Launch::on(&pool).env("ORLOP_RUN_DIR", run_dir), "ORLOP_RUN_DIR");
}

#[test]
fn one_socket_by_two_paths_is_refused() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let (scratch, link) = (pool.scratch(), pool.scratch().join("link"));
    symlink(scratch.path(), &link).unwrap();
    for directory in [scratch.join("pool/.."), link, scratch.join("no/..")] {
        let socket = format!("unix://{}", directory.join("csi.sock").display());
        refused(&Launch::on(&pool).env("ORLOP_ADDONS_ENDPOINT", socket), "ORLOP_ADDONS_ENDPOINT");
    }
}

#[test]
fn a_socket_among_the_records_is_refused_by_any_path() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let (scratch, link) = (pool.scratch(), pool.scratch().join("link"));
    symlink(scratch.ensure_dir("run"), &link).unwrap();
    for run_dir in [scratch.join("run"), scratch.join("run/../run"), link] {
        let socket = run_dir.join("csi.orlop.io/volumes/a.sock");
        let endpoint = format!("unix://{}", socket.display());
        refused(&Launch::on(&pool).env("CSI_ENDPOINT", &endpoint), "CSI_ENDPOINT");
        let addons = Launch::on(&pool).env("ORLOP_ADDONS_ENDPOINT", &endpoint);
        refused(&addons, "ORLOP_ADDONS_ENDPOINT");
    }
}

/// 255 bytes for a name and 4095 for a path, in every filesystem that Linux has.
#[test]
fn a_name_that_no_directory_can_have_is_refused() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let names = ["n".repeat(256), "directory/".repeat(450)];
    for path in names.map(|name| pool.scratch().join(name)) {
        refused(&Launch::on(&pool).env("ORLOP_RUN_DIR", &path), "ORLOP_RUN_DIR");
        refused(&Launch::on(&pool).env("ORLOP_POOL", &path), "ORLOP_POOL");
    }
}

#[test]
fn links_into_a_pool_are_refused() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let launch = Launch::on(&pool);
    let link = pool.scratch().join("link");
    symlink(&pool.path, &link).unwrap();
    let run_dir = launch.clone().env("ORLOP_RUN_DIR", &link);
    let socket = format!("unix://{}", link.join("csi.sock").display());
    for (launch, setting) in [
        (run_dir, "ORLOP_RUN_DIR"),
        (launch.clone().env("ORLOP_RUN_DIR", link.join("run")), "ORLOP_RUN_DIR"),
        (launch.clone().env("CSI_ENDPOINT", &socket), "CSI_ENDPOINT"),
        (launch.clone().env("ORLOP_ADDONS_ENDPOINT", &socket), "ORLOP_ADDONS_ENDPOINT"),
    ] {
        refused(&launch, setting);
        for path in [&link, &pool.path] {
            refused_by_check(&launch, path.to_str().unwrap());
        }
        assert_eq!(pool.path.read_dir().unwrap().count(), 0, "{setting}");
    }
}
