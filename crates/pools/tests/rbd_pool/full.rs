//! A Ceph pool that is full: nothing can be created, and everything can be deleted.

use std::fs;

use orlop_model::{Error, NodeId, Pool, Provisioning};
use orlop_pools::{RbdPool, RbdPoolConfig};
use serde_json::Value;
use tempfile::TempDir;

use crate::fixture::{
    Fixture, MIB, create, new_snapshot, new_volume, run, snapshot, until, volume,
};

const POOL: &str = "small";

/// Its own Ceph pool, as a quota is one of the pool; and a user that may do no more in it than
/// Orlop asks for.
fn small_pool(fixture: &Fixture, directory: &TempDir) -> RbdPoolConfig {
    run("ceph", &["osd", "pool", "create", POOL, "1"]);
    run("rbd", &["pool", "init", POOL]);
    let keyring = directory.path().join("keyring");
    let scope = format!("profile rbd pool={POOL}");
    let user = ["auth", "get-or-create", "client.small", "mon", "profile rbd"];
    let key = keyring.to_str().unwrap();
    run("ceph", &[&user[..], &["mgr", &scope, "osd", &scope, "-o", key]].concat());
    assert!(fs::metadata(&keyring).unwrap().len() > 0);
    // Which it does not before its stores have reported it.
    until("the cluster reckons with the pool", || run("ceph", &["df"]).contains(POOL));
    RbdPoolConfig {
        pool: POOL.to_owned(),
        namespace: String::new(),
        user: POOL.to_owned(),
        keyring,
        collects_garbage: true,
        ..fixture.config()
    }
}

fn set_most_objects(most: &str) {
    run("ceph", &["osd", "pool", "set-quota", POOL, "max_objects", most]);
}

/// As a client that writes to the pool sees it.
fn is_full() -> bool {
    let pools = run("ceph", &["osd", "pool", "ls", "detail", "--format", "json"]);
    let pools: Value = serde_json::from_str(&pools).unwrap();
    let small = pools.as_array().unwrap().iter().find(|pool| pool["pool_name"] == POOL).unwrap();
    small["flags_names"].as_str().unwrap().split(',').any(|flag| flag == "full")
}

fn rbd_json(command: &[&str]) -> Value {
    let place = ["--pool", POOL, "--format", "json"];
    serde_json::from_str(&run("rbd", &[command, &place[..]].concat())).unwrap()
}

/// As a node does that attaches it; of a client that is long gone.
fn note_writer(image: &str, node: &NodeId) {
    let id = rbd_json(&["info", image])["id"].as_str().unwrap().to_owned();
    let key = format!("orlop.writer.{id}.{node}");
    run("rbd", &["image-meta", "set", &format!("{POOL}/{image}"), &key, "127.0.0.1:0/1"]);
}

fn fill(image: &str) {
    let writing = ["bench", "--io-type", "write", "--io-size", "4M", "--io-total", "8M"];
    run("rbd", &[&writing[..], &[&format!("{POOL}/{image}")]].concat());
}

#[test]
fn a_full_pool_refuses_creation_and_allows_deletion() {
    let Some(fixture) = Fixture::new() else { return };
    let directory = tempfile::tempdir().unwrap();
    let pool = RbdPool::open(&small_pool(&fixture, &directory)).unwrap();
    let node: NodeId = "n2".parse().unwrap();
    let kept = volume(&pool, "kept", 16 * MIB);
    let gone = volume(&pool, "gone", 16 * MIB);
    let taken = snapshot(&pool, "cut", &gone);
    note_writer(&gone.id.to_string(), &node);
    fill(&gone.id.to_string());
    set_most_objects("1");
    until("the pool is full", is_full);

    let refused = create(&pool, &new_volume(&pool, "more", 16 * MIB));
    assert!(matches!(refused, Err(Error::Exhausted(_))), "{refused:?}");
    let refused = pool.provisioner().begin_snapshot(&new_snapshot(&pool, "more", &kept)).map(drop);
    assert!(matches!(refused, Err(Error::Exhausted(_))), "{refused:?}");
    let refused = pool.provisioner().ensure_capacity(&kept.id, 32 * MIB);
    assert!(matches!(refused, Err(Error::Exhausted(_))), "{refused:?}");
    assert_eq!(pool.provisioner().capacity(Provisioning::Thin).unwrap().available_bytes, 0);
    assert!(pool.health().condition(&kept.id).unwrap().is_abnormal());

    let raw = pool.catalogue().update_volume(&gone.id, &mut |record| {
        record.ephemeral = true;
        Ok(())
    });
    assert!(raw.unwrap().ephemeral);
    pool.shared().unwrap().ensure_fenced(&gone.id, &node).unwrap();
    let blocked = run("ceph", &["osd", "blocklist", "ls"]);
    assert!(blocked.contains("127.0.0.1:0/1"), "{blocked}");
    pool.provisioner().ensure_no_snapshot(&taken.id).unwrap();
    pool.provisioner().ensure_no_volume(&gone.id).unwrap();
    let trash_is_empty = || rbd_json(&["trash", "ls"]) == Value::Array(Vec::new());
    until("what was deleted is freed", trash_is_empty);
    assert!(is_full());

    set_most_objects("0");
    until("there is room again", || !is_full());
    pool.provisioner().ensure_capacity(&kept.id, 32 * MIB).unwrap();
    volume(&pool, "more", 16 * MIB);
}
