//! Snapshots and clones: of volumes at rest, and of volumes whose writers must be held still.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use orlop_engine::EngineSettings;
use orlop_engine::request::StageVolume;
use orlop_host::MemoryHost;
use orlop_host::memory::Op;
use orlop_model::AccessMode::*;
use orlop_model::{Consistency, Error, FsType, Host, NodeRecord, VolumeId};

use crate::bench::*;

/// A copy of `source` under some name, as a snapshot and as a clone.
type Copying = fn(&Bench, &str, &VolumeId) -> Result<(), Error>;
const COPIES: [(&str, Copying); 2] = [
    ("snapshot", |bench, name, source| {
        bench.engine.create_snapshot(&snapshot(name, source)).map(drop)
    }),
    ("clone", |bench, name, source| bench.engine.create_volume(&cloned(name, source)).map(drop)),
];

fn freezes_and_thaws(bench: &Bench) -> Vec<Op> {
    let of_interest = |op: &Op| matches!(op, Op::Freeze | Op::Thaw | Op::SyncDevice);
    bench.host.log().into_iter().map(|done| done.op).filter(of_interest).collect()
}

fn copies_made(bench: &Bench) -> usize {
    let snapshots = bench.engine.list_snapshots(&Default::default(), None, 0).unwrap();
    bench.names().len() + snapshots.entries.len()
}

#[test]
fn copies_hold_what_the_source_held_and_go_their_own_way() {
    let bench = Bench::new();
    let origin = bench.create("origin");
    bench.pool().write_tag(&origin, "first").unwrap();
    let saved = bench.snapshot("s", &origin);
    let twin = bench.create_as(cloned("twin", &origin));
    bench.pool().write_tag(&origin, "second").unwrap();
    let back = bench.create_as(restored("back", &saved));
    let tag = |id| bench.pool().tag(id).unwrap();
    assert_eq!(
        (tag(&origin), tag(&twin), tag(&back)),
        ("second".into(), "first".into(), "first".into())
    );
    bench.pool().write_tag(&back, "third").unwrap();
    assert_eq!(bench.pool().snapshot_tag(&saved).unwrap(), "first");
    assert_eq!(tag(&bench.create_as(restored("again", &saved))), "first");
}

#[test]
fn a_snapshot_is_made_once_for_its_name() {
    let bench = Bench::new();
    let [a, b] = ["a", "b"].map(|name| bench.create(name));
    let first = bench.engine.create_snapshot(&snapshot("s", &a)).unwrap();
    bench.pool().write_tag(&a, "later").unwrap();
    assert_eq!(bench.engine.create_snapshot(&snapshot("s", &a)).unwrap(), first);
    assert_eq!(bench.pool().snapshot_tag(&first.id).unwrap(), "");
    refused!(bench.engine.create_snapshot(&snapshot("s", &b)), Error::Conflict { .. });
    // A volume of the same name is another thing.
    bench.create("s");
    bench.engine.delete_volume(&a).unwrap();
    assert_eq!(bench.engine.create_snapshot(&snapshot("s", &a)).unwrap(), first, "CS-02");
}

#[test]
fn a_volume_at_rest_is_not_frozen() {
    for (what, copy) in COPIES {
        let bench = Bench::new();
        let origin = bench.create("origin");
        bench.stage(&origin);
        bench.unstage(&origin).unwrap();
        bench.host.clear_log();
        copy(&bench, "copy", &origin).unwrap();
        assert_eq!(freezes_and_thaws(&bench), [], "{what}");
    }
}

#[test]
fn a_mounted_volume_is_held_still_for_the_cut_and_no_longer() {
    for (what, copy) in COPIES {
        let bench = Bench::new();
        let origin = bench.create("origin");
        bench.stage(&origin);
        let was_frozen = Arc::new(AtomicBool::new(false));
        let (host, seen) = (Arc::clone(&bench.host), Arc::clone(&was_frozen));
        bench.pool().during_next_cut(move || {
            seen.store(host.is_frozen(&path(STAGING)), Ordering::SeqCst);
        });
        copy(&bench, "copy", &origin).unwrap();
        assert!(was_frozen.load(Ordering::SeqCst), "{what}");
        assert!(!bench.host.is_frozen(&path(STAGING)), "{what}");
        assert_eq!(freezes_and_thaws(&bench), [Op::Freeze, Op::Thaw], "{what}");
    }
}

#[test]
fn a_volume_that_is_only_read_is_not_frozen() {
    let bench = Bench::new();
    let origin = bench.create("origin");
    let reading = StageVolume { capability: mount(None, SingleNodeReaderOnly), ..stage(&origin) };
    bench.engine.stage_volume(&reading).unwrap();
    bench.snapshot("s", &origin);
    assert_eq!(freezes_and_thaws(&bench), []);
}

#[test]
fn what_was_written_to_a_raw_device_is_on_the_pool_before_the_cut() {
    let bench = Bench::new();
    let origin = bench.create_as(block_volume("origin"));
    bench.engine.stage_volume(&stage_block(&origin)).unwrap();
    bench.snapshot("s", &origin);
    assert_eq!(freezes_and_thaws(&bench), [Op::SyncDevice]);
    bench.host.fail_next(Op::SyncDevice, Error::failed("sync", "broken on purpose"));
    refused!(bench.engine.create_snapshot(&snapshot("t", &origin)), Error::Failed { .. });
    assert_eq!(copies_made(&bench), 2);
}

#[test]
fn whatever_fails_the_source_is_thawed_and_nothing_is_made() {
    let broken = || Error::failed("try", "broken on purpose");
    for (what, copy) in COPIES {
        for step in ["freeze", "cut", "thaw", "commit"] {
            let bench = Bench::new();
            let origin = bench.create("origin");
            bench.stage(&origin);
            match step {
                "freeze" => bench.host.fail_next(Op::Freeze, broken()),
                "thaw" => bench.host.fail_next(Op::Thaw, broken()),
                operation => bench.pool().fail_next(operation, broken()),
            }
            assert_eq!(copy(&bench, "copy", &origin), Err(broken()), "{what}, {step}");
            assert!(!bench.host.is_frozen(&path(STAGING)), "{what}, {step}");
            assert_eq!(copies_made(&bench), 1, "{what}, {step}");
            copy(&bench, "copy", &origin)
                .unwrap_or_else(|error| panic!("{what}, after {step}: {error}"));
        }
    }
}

#[test]
fn a_copy_of_a_source_that_moved_is_discarded() {
    for (what, copy) in COPIES {
        let bench = Bench::new();
        let origin = bench.create("origin");
        bench.stage(&origin);
        let host = Arc::clone(&bench.host);
        bench.pool().during_next_cut(move || host.expire_freezes());
        let error = copy(&bench, "copy", &origin).expect_err(what);
        assert!(error.to_string().contains("consistent"), "{what}: {error}");
        assert_eq!(copies_made(&bench), 1, "{what}");
        assert!(!bench.host.is_frozen(&path(STAGING)), "{what}");
    }
}

/// GEN-23: a call that comes while a copy is made is refused as busy, or has nothing to do with it.
#[test]
fn while_a_copy_is_made_its_parts_are_busy_and_all_else_is_not() {
    let bench = Bench::new();
    let origin = bench.create("origin");
    bench.stage(&origin);
    let engine = Arc::clone(&bench.engine);
    let source = origin.clone();
    bench.pool().during_next_cut(move || {
        let busy = |result: Result<(), Error>| {
            refused!(result, Error::Busy { .. });
        };
        busy(engine.delete_volume(&source));
        busy(engine.create_volume(&cloned("other", &source)).map(drop));
        busy(engine.create_snapshot(&snapshot("other", &source)).map(drop));
        busy(engine.create_snapshot(&snapshot("s", &source)).map(drop));
        busy(engine.expand_volume(&source, &range(2 * GIB, 0), None).map(drop));
        busy(engine.unstage_volume(&issued(&source), &path(STAGING)));
        engine.create_volume(&volume("elsewhere")).unwrap();
        engine.volume_status(&source).unwrap();
        assert_eq!(engine.list_volumes(None, 0).unwrap().entries.len(), 2);
    });
    bench.snapshot("s", &origin);
    assert_eq!(bench.names(), ["elsewhere", "origin"]);
    bench.unstage(&origin).unwrap();
}

/// A filesystem is frozen by one at a time; the other waits instead of being refused.
#[test]
fn copies_of_a_mounted_source_wait_for_each_other() {
    let settings = EngineSettings { lock_patience: Duration::from_secs(60), ..settings() };
    let pools = vec![pool("default", &zone("z1"), 100 * GIB)];
    let bench = Bench::assembled(pools, MemoryHost::default(), settings);
    let origin = bench.create("origin");
    bench.stage(&origin);
    let (engine, source) = (Arc::clone(&bench.engine), origin.clone());
    let (send, second) = std::sync::mpsc::channel();
    bench.pool().during_next_cut(move || {
        let copy = move || engine.create_volume(&cloned("second", &source)).map(drop);
        send.send(std::thread::spawn(copy)).unwrap();
    });
    bench.create_as(cloned("first", &origin));
    second.recv().unwrap().join().unwrap().unwrap();
    assert_eq!(bench.names(), ["first", "origin", "second"]);
    assert_eq!(bench.host.count(Op::Freeze), 2);
}

/// Copying changes nothing, so copies of what is not in use are not in each other's way.
#[test]
fn a_volume_is_cloned_by_many_at_once_and_not_deleted_in_that_time() {
    let bench = Bench::new();
    let origin = bench.create("origin");
    let (engine, source) = (Arc::clone(&bench.engine), origin.clone());
    bench.pool().during_next_cut(move || {
        for name in ["second", "third", "fourth"] {
            engine.create_volume(&cloned(name, &source)).unwrap();
        }
        engine.create_snapshot(&snapshot("s", &source)).unwrap();
        refused!(engine.delete_volume(&source), Error::Busy { .. });
        refused!(engine.expand_volume(&source, &range(2 * GIB, 0), None), Error::Busy { .. });
    });
    bench.create_as(cloned("first", &origin));
    assert_eq!(bench.names(), ["first", "fourth", "origin", "second", "third"]);
    bench.engine.delete_volume(&origin).unwrap();
}

#[test]
fn a_snapshot_is_restored_by_many_at_once_and_not_deleted_in_that_time() {
    let bench = Bench::new();
    let saved = bench.snapshot("s", &bench.create("origin"));
    let (engine, source) = (Arc::clone(&bench.engine), saved.clone());
    bench.pool().during_next_cut(move || {
        engine.create_volume(&restored("second", &source)).unwrap();
        refused!(engine.delete_snapshot(&source), Error::Busy { .. });
        refused!(engine.create_volume(&restored("first", &source)), Error::Busy { .. });
    });
    bench.create_as(restored("first", &saved));
    assert_eq!(bench.names(), ["first", "origin", "second"]);
    bench.engine.delete_snapshot(&saved).unwrap();
}

/// A thick clone is copied byte by byte after the cut, which may take minutes.
#[test]
fn a_source_is_free_again_once_it_is_cut() {
    let bench = Bench::new();
    let origin = bench.create("origin");
    bench.pool().write_tag(&origin, "first").unwrap();
    let saved = bench.snapshot("s", &origin);
    bench.stage(&origin);
    for name in ["a clone", "b clone", "c clone"] {
        let (engine, source) = (Arc::clone(&bench.engine), origin.clone());
        bench.pool().during_next_commit(move || {
            refused!(engine.create_volume(&cloned(name, &source)), Error::Busy { .. });
            engine.unstage_volume(&issued(&source), &path(STAGING)).unwrap();
            engine.stage_volume(&stage(&source)).unwrap();
        });
        bench.create_as(cloned(name, &origin));
    }
    bench.unstage(&origin).unwrap();
    let (engine, source) = (Arc::clone(&bench.engine), origin.clone());
    bench.pool().during_next_commit(move || engine.delete_volume(&source).unwrap());
    let last = bench.create_as(cloned("last", &origin));
    let (engine, source) = (Arc::clone(&bench.engine), saved.clone());
    bench.pool().during_next_commit(move || engine.delete_snapshot(&source).unwrap());
    let back = bench.create_as(restored("back", &saved));
    for id in [last, back] {
        assert_eq!(bench.pool().tag(&id).unwrap(), "first");
    }
}

/// Not "busy", which would be retried without end.
#[test]
fn a_lost_source_of_the_same_name_is_not_found() {
    let bench = Bench::new();
    let origin = bench.create("origin");
    bench.engine.delete_volume(&origin).unwrap();
    refused!(bench.engine.create_volume(&cloned("origin", &origin)), Error::NoSuchVolume(_));
    assert!(bench.names().is_empty());
}

#[test]
fn writers_are_held_where_they_are_when_the_staging_mount_is_gone() {
    let bench = Bench::new();
    let id = bench.create("v");
    bench.stage(&id);
    bench.publish(&id);
    bench.host.ensure_unmounted(&path(STAGING)).unwrap();
    let host = Arc::clone(&bench.host);
    bench.pool().during_next_cut(move || assert!(host.is_frozen(&path(TARGET))));
    bench.snapshot("s", &id);
    assert!(!bench.host.is_frozen(&path(TARGET)));
}

/// The kernel knows that it is in use.
#[test]
fn writers_whose_record_is_lost_are_held_where_they_are_mounted() {
    for (what, copy) in COPIES {
        let bench = Bench::new();
        let id = bench.create("v");
        bench.stage(&id);
        bench.host.save_node_record(&id, &NodeRecord::default()).unwrap();
        let host = Arc::clone(&bench.host);
        bench.pool().during_next_cut(move || assert!(host.is_frozen(&path(STAGING)), "{what}"));
        copy(&bench, "copy", &id).unwrap();
        assert!(!bench.host.is_frozen(&path(STAGING)), "{what}");
    }
}

/// Attached, and mounted nowhere in sight: another mount namespace may have it.
#[test]
fn what_is_attached_and_not_in_sight_may_be_written_to() {
    let bench = Bench::new();
    bench.pool().cut_piecemeal();
    let id = bench.create("v");
    bench.stage(&id);
    bench.host.ensure_unmounted(&path(STAGING)).unwrap();
    for record in [bench.node_record(&id), NodeRecord::default()] {
        bench.host.save_node_record(&id, &record).unwrap();
        let (host, device) = (Arc::clone(&bench.host), bench.device(&id));
        bench.pool().during_next_cut(move || host.write_to(&device));
        let torn = bench.engine.create_snapshot(&snapshot("torn", &id));
        refused!(torn, Error::Precondition(_));
    }
    let quiet = bench.engine.create_snapshot(&snapshot("quiet", &id)).unwrap();
    assert_eq!(quiet.consistency, Consistency::Crash);
}

#[test]
fn a_single_btrfs_is_synced_and_not_frozen() {
    let bench = Bench::new();
    let id = bench.create_as(volume_of("v", FsType::Btrfs));
    bench.stage(&id);
    bench.host.clear_log();
    bench.snapshot("s", &id);
    assert_eq!((bench.host.count(Op::SyncFilesystem), bench.host.count(Op::Freeze)), (1, 0));
    // On a pool that copies piece by piece it has to be held all the same.
    bench.pool().cut_piecemeal();
    bench.snapshot("t", &id);
    assert_eq!(bench.host.count(Op::Freeze), 1);
}

#[test]
fn a_raw_device_is_copied_piece_by_piece_only_while_nothing_writes() {
    let bench = Bench::new();
    bench.pool().cut_piecemeal();
    let id = bench.create_as(block_volume("v"));
    bench.engine.stage_volume(&stage_block(&id)).unwrap();
    bench.engine.publish_volume(&publish_block(&id, TARGET)).unwrap();
    bench.snapshot("quiet", &id);
    let (host, device) = (Arc::clone(&bench.host), bench.device(&id));
    bench.pool().during_next_cut(move || host.write_to(&device));
    let torn = bench.engine.create_snapshot(&snapshot("torn", &id));
    refused!(torn, Error::Precondition(_));
    assert_eq!(bench.engine.list_snapshots(&Default::default(), None, 0).unwrap().entries.len(), 1);
}
