//! Snapshots and clones: of volumes at rest, and of volumes whose writers must be frozen.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use orlop_engine::EngineSettings;
use orlop_engine::request::{CreateGroupSnapshot, StageVolume};
use orlop_host::MemoryHost;
use orlop_host::memory::Op;
use orlop_model::AccessMode::*;
use orlop_model::{
    Consistency, Error, FsType, HostMounts, HostRecords, NodeRecord, Pool, VolumeId, VolumeRecord,
};

use crate::fixture::*;

/// A copy of `source` under some name, as a snapshot and as a clone.
type Copying = fn(&Fixture, &str, &VolumeId) -> Result<(), Error>;
const COPIES: [(&str, Copying); 2] = [
    ("snapshot", |fixture, name, source| {
        fixture.engine.create_snapshot(&snapshot(name, source)).map(drop)
    }),
    ("clone", |fixture, name, source| {
        fixture.engine.create_volume(&cloned(name, source)).map(drop)
    }),
];

fn freezes_and_thaws(fixture: &Fixture) -> Vec<Op> {
    let of_interest = |op: &Op| matches!(op, Op::Freeze | Op::Thaw | Op::SyncDevice);
    fixture.host.log().into_iter().map(|done| done.op).filter(of_interest).collect()
}

fn copies_made(fixture: &Fixture) -> usize {
    let snapshots = fixture.engine.list_snapshots(&Default::default(), None, 0).unwrap();
    fixture.names().len() + snapshots.entries.len()
}

#[test]
fn copies_are_equal_at_first_and_independent_later() {
    let fixture = Fixture::new();
    let origin = fixture.create("origin");
    fixture.pool().write_tag(&origin, "first").unwrap();
    let saved = fixture.snapshot("s", &origin);
    let twin = fixture.create_as(cloned("twin", &origin));
    fixture.pool().write_tag(&origin, "second").unwrap();
    let back = fixture.create_as(restored("back", &saved));
    let tag = |id| fixture.pool().tag(id).unwrap();
    assert_eq!(
        (tag(&origin), tag(&twin), tag(&back)),
        ("second".into(), "first".into(), "first".into())
    );
    fixture.pool().write_tag(&back, "third").unwrap();
    assert_eq!(fixture.pool().snapshot_tag(&saved).unwrap(), "first");
    assert_eq!(tag(&fixture.create_as(restored("again", &saved))), "first");
}

#[test]
fn snapshot_is_created_once_per_name() {
    let fixture = Fixture::new();
    let [a, b] = ["a", "b"].map(|name| fixture.create(name));
    let first = fixture.engine.create_snapshot(&snapshot("s", &a)).unwrap();
    fixture.pool().write_tag(&a, "later").unwrap();
    assert_eq!(fixture.engine.create_snapshot(&snapshot("s", &a)).unwrap(), first);
    assert_eq!(fixture.pool().snapshot_tag(&first.id).unwrap(), "");
    refused!(fixture.engine.create_snapshot(&snapshot("s", &b)), Error::Conflict { .. });
    // A volume of the same name is another thing.
    fixture.create("s");
    fixture.engine.delete_volume(&a).unwrap();
    assert_eq!(fixture.engine.create_snapshot(&snapshot("s", &a)).unwrap(), first, "CS-02");
}

/// Ids come from names: the second volume has the id of the first.
#[test]
fn snapshot_of_a_former_volume_is_not_taken_for_a_new_one() {
    let fixture = Fixture::new();
    let former = fixture.create("v");
    let taken = fixture.engine.create_snapshot(&snapshot("s", &former)).unwrap();
    let grouped =
        CreateGroupSnapshot { name: "g".parse().unwrap(), sources: [former.clone()].into() };
    let group = fixture.engine.create_group_snapshot(&grouped).unwrap();
    fixture.engine.delete_volume(&former).unwrap();
    // Without its volume, the repeated call has nothing to compare with.
    assert_eq!(fixture.engine.create_snapshot(&snapshot("s", &former)).unwrap(), taken);

    let again = fixture.create("v");
    assert_eq!(again, former);
    refused!(fixture.engine.create_snapshot(&snapshot("s", &again)), Error::Conflict { .. });
    refused!(fixture.engine.create_group_snapshot(&grouped), Error::Conflict { .. });
    let other = fixture.engine.create_snapshot(&snapshot("t", &again)).unwrap();
    assert_eq!(fixture.engine.create_snapshot(&snapshot("t", &again)).unwrap(), other);
    // The former ones are there, and can be deleted.
    fixture.engine.delete_snapshot(&taken.id).unwrap();
    let members = group.members.iter().map(|member| member.id.to_string()).collect();
    fixture.engine.delete_group_snapshot(&group.record.id, &members).unwrap();
    fixture.engine.create_snapshot(&snapshot("s", &again)).unwrap();
}

/// As by a clock that was set back, or by that of another controller.
#[test]
fn repeated_snapshot_of_a_volume_from_the_future_is_the_first() {
    let fixture = Fixture::new();
    let source = fixture.create("v");
    let hour = Duration::from_secs(3600);
    let age = |record: &mut VolumeRecord| {
        record.created = (SystemTime::now() + hour).into();
        Ok(())
    };
    fixture.pool().catalogue().update_volume(&source, &mut { age }).unwrap();
    let taken = fixture.engine.create_snapshot(&snapshot("s", &source)).unwrap();
    assert_eq!(fixture.engine.create_snapshot(&snapshot("s", &source)).unwrap(), taken);
}

#[test]
fn unmounted_volume_is_not_frozen() {
    for (what, copy) in COPIES {
        let fixture = Fixture::new();
        let origin = fixture.create("origin");
        fixture.stage(&origin);
        fixture.unstage(&origin).unwrap();
        fixture.host.clear_log();
        copy(&fixture, "copy", &origin).unwrap();
        assert_eq!(freezes_and_thaws(&fixture), [], "{what}");
    }
}

#[test]
fn mounted_volume_is_frozen_only_during_the_copy() {
    for (what, copy) in COPIES {
        let fixture = Fixture::new();
        let origin = fixture.create("origin");
        fixture.stage(&origin);
        let was_frozen = Arc::new(AtomicBool::new(false));
        let (host, seen) = (Arc::clone(&fixture.host), Arc::clone(&was_frozen));
        fixture.pool().during_next_capture(move || {
            seen.store(host.is_frozen(&path(STAGING)), Ordering::SeqCst);
        });
        copy(&fixture, "copy", &origin).unwrap();
        assert!(was_frozen.load(Ordering::SeqCst), "{what}");
        assert!(!fixture.host.is_frozen(&path(STAGING)), "{what}");
        assert_eq!(freezes_and_thaws(&fixture), [Op::Freeze, Op::Thaw], "{what}");
    }
}

#[test]
fn volume_mounted_read_only_is_not_frozen() {
    let fixture = Fixture::new();
    let origin = fixture.create("origin");
    let reading = StageVolume { capability: mount(None, SingleNodeReaderOnly), ..stage(&origin) };
    fixture.engine.stage_volume(&reading).unwrap();
    fixture.snapshot("s", &origin);
    assert_eq!(freezes_and_thaws(&fixture), []);
}

#[test]
fn raw_device_is_flushed_before_the_copy() {
    let fixture = Fixture::new();
    let origin = fixture.create_as(block_volume("origin"));
    fixture.engine.stage_volume(&stage_block(&origin)).unwrap();
    fixture.snapshot("s", &origin);
    assert_eq!(freezes_and_thaws(&fixture), [Op::SyncDevice]);
    fixture.host.fail_next(Op::SyncDevice, Error::failed("sync", "broken on purpose"));
    refused!(fixture.engine.create_snapshot(&snapshot("t", &origin)), Error::Failed { .. });
    assert_eq!(copies_made(&fixture), 2);
}

#[test]
fn failed_copy_thaws_the_source_and_leaves_nothing() {
    let broken = || Error::failed("try", "broken on purpose");
    for (what, copy) in COPIES {
        for step in ["freeze", "capture", "thaw", "commit"] {
            let fixture = Fixture::new();
            let origin = fixture.create("origin");
            fixture.stage(&origin);
            match step {
                "freeze" => fixture.host.fail_next(Op::Freeze, broken()),
                "thaw" => fixture.host.fail_next(Op::Thaw, broken()),
                operation => fixture.pool().fail_next(operation, broken()),
            }
            assert_eq!(copy(&fixture, "copy", &origin), Err(broken()), "{what}, {step}");
            assert!(!fixture.host.is_frozen(&path(STAGING)), "{what}, {step}");
            assert_eq!(copies_made(&fixture), 1, "{what}, {step}");
            copy(&fixture, "copy", &origin)
                .unwrap_or_else(|error| panic!("{what}, after {step}: {error}"));
        }
    }
}

#[test]
fn copy_during_an_expired_freeze_is_discarded() {
    for (what, copy) in COPIES {
        let fixture = Fixture::new();
        let origin = fixture.create("origin");
        fixture.stage(&origin);
        let host = Arc::clone(&fixture.host);
        fixture.pool().during_next_capture(move || host.expire_freezes());
        let error = copy(&fixture, "copy", &origin).expect_err(what);
        assert!(error.to_string().contains("consistent"), "{what}: {error}");
        assert_eq!(copies_made(&fixture), 1, "{what}");
        assert!(!fixture.host.is_frozen(&path(STAGING)), "{what}");
    }
}

/// GEN-23: a call during a copy is answered ABORTED, or is not affected by the copy.
#[test]
fn copy_locks_only_its_source_and_target() {
    let fixture = Fixture::new();
    let origin = fixture.create("origin");
    fixture.stage(&origin);
    let engine = Arc::clone(&fixture.engine);
    let source = origin.clone();
    fixture.pool().during_next_capture(move || {
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
    fixture.snapshot("s", &origin);
    assert_eq!(fixture.names(), ["elsewhere", "origin"]);
    fixture.unstage(&origin).unwrap();
}

/// A filesystem is frozen by one at a time; the other waits instead of being refused.
#[test]
fn copies_of_a_mounted_source_are_serialized() {
    let settings = EngineSettings { lock_timeout: Duration::from_secs(60), ..settings() };
    let pools = vec![pool("default", &zone("z1"), 100 * GIB)];
    let fixture = Fixture::assembled(pools, MemoryHost::default(), settings);
    let origin = fixture.create("origin");
    fixture.stage(&origin);
    let (engine, source) = (Arc::clone(&fixture.engine), origin.clone());
    let (send, second) = std::sync::mpsc::channel();
    fixture.pool().during_next_capture(move || {
        let copy = move || engine.create_volume(&cloned("second", &source)).map(drop);
        send.send(std::thread::spawn(copy)).unwrap();
    });
    fixture.create_as(cloned("first", &origin));
    second.recv().unwrap().join().unwrap().unwrap();
    assert_eq!(fixture.names(), ["first", "origin", "second"]);
    assert_eq!(fixture.host.count(Op::Freeze), 2);
}

/// Copying changes nothing, so copies of what is not in use are not in each other's way.
#[test]
fn concurrent_clones_block_deletion_of_the_source() {
    let fixture = Fixture::new();
    let origin = fixture.create("origin");
    let (engine, source) = (Arc::clone(&fixture.engine), origin.clone());
    fixture.pool().during_next_capture(move || {
        for name in ["second", "third", "fourth"] {
            engine.create_volume(&cloned(name, &source)).unwrap();
        }
        engine.create_snapshot(&snapshot("s", &source)).unwrap();
        refused!(engine.delete_volume(&source), Error::Busy { .. });
        refused!(engine.expand_volume(&source, &range(2 * GIB, 0), None), Error::Busy { .. });
    });
    fixture.create_as(cloned("first", &origin));
    assert_eq!(fixture.names(), ["first", "fourth", "origin", "second", "third"]);
    fixture.engine.delete_volume(&origin).unwrap();
}

#[test]
fn concurrent_restores_block_deletion_of_the_snapshot() {
    let fixture = Fixture::new();
    let saved = fixture.snapshot("s", &fixture.create("origin"));
    let (engine, source) = (Arc::clone(&fixture.engine), saved.clone());
    fixture.pool().during_next_capture(move || {
        engine.create_volume(&restored("second", &source)).unwrap();
        refused!(engine.delete_snapshot(&source), Error::Busy { .. });
        refused!(engine.create_volume(&restored("first", &source)), Error::Busy { .. });
    });
    fixture.create_as(restored("first", &saved));
    assert_eq!(fixture.names(), ["first", "origin", "second"]);
    fixture.engine.delete_snapshot(&saved).unwrap();
}

/// A thick clone is copied byte by byte after the capture, which may take minutes.
#[test]
fn source_is_unlocked_after_the_point_in_time_copy() {
    let fixture = Fixture::new();
    let origin = fixture.create("origin");
    fixture.pool().write_tag(&origin, "first").unwrap();
    let saved = fixture.snapshot("s", &origin);
    fixture.stage(&origin);
    for name in ["a clone", "b clone", "c clone"] {
        let (engine, source) = (Arc::clone(&fixture.engine), origin.clone());
        fixture.pool().during_next_commit(move || {
            refused!(engine.create_volume(&cloned(name, &source)), Error::Busy { .. });
            engine.unstage_volume(&issued(&source), &path(STAGING)).unwrap();
            engine.stage_volume(&stage(&source)).unwrap();
        });
        fixture.create_as(cloned(name, &origin));
    }
    fixture.unstage(&origin).unwrap();
    let (engine, source) = (Arc::clone(&fixture.engine), origin.clone());
    fixture.pool().during_next_commit(move || engine.delete_volume(&source).unwrap());
    let last = fixture.create_as(cloned("last", &origin));
    let (engine, source) = (Arc::clone(&fixture.engine), saved.clone());
    fixture.pool().during_next_commit(move || engine.delete_snapshot(&source).unwrap());
    let back = fixture.create_as(restored("back", &saved));
    for id in [last, back] {
        assert_eq!(fixture.pool().tag(&id).unwrap(), "first");
    }
}

/// Not "busy", which would be retried without end.
#[test]
fn lost_source_of_the_same_name_is_not_found() {
    let fixture = Fixture::new();
    let origin = fixture.create("origin");
    fixture.engine.delete_volume(&origin).unwrap();
    refused!(fixture.engine.create_volume(&cloned("origin", &origin)), Error::NoSuchVolume(_));
    assert!(fixture.names().is_empty());
}

#[test]
fn writers_are_frozen_at_the_target_if_staging_is_gone() {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    fixture.publish(&id);
    fixture.host.ensure_unmounted(&path(STAGING)).unwrap();
    let host = Arc::clone(&fixture.host);
    fixture.pool().during_next_capture(move || assert!(host.is_frozen(&path(TARGET))));
    fixture.snapshot("s", &id);
    assert!(!fixture.host.is_frozen(&path(TARGET)));
}

/// The kernel knows that it is in use.
#[test]
fn writers_without_a_record_are_frozen_where_mounted() {
    for (what, copy) in COPIES {
        let fixture = Fixture::new();
        let id = fixture.create("v");
        fixture.stage(&id);
        fixture.host.save_node_record(&id, &NodeRecord::default()).unwrap();
        let host = Arc::clone(&fixture.host);
        fixture
            .pool()
            .during_next_capture(move || assert!(host.is_frozen(&path(STAGING)), "{what}"));
        copy(&fixture, "copy", &id).unwrap();
        assert!(!fixture.host.is_frozen(&path(STAGING)), "{what}");
    }
}

/// Attached, and mounted nowhere in sight: another mount namespace may have it.
#[test]
fn attached_volume_without_visible_mount_may_be_written() {
    let fixture = Fixture::new();
    fixture.pool().capture_piecemeal();
    let id = fixture.create("v");
    fixture.stage(&id);
    fixture.host.ensure_unmounted(&path(STAGING)).unwrap();
    for record in [fixture.node_record(&id), NodeRecord::default()] {
        fixture.host.save_node_record(&id, &record).unwrap();
        let (host, device) = (Arc::clone(&fixture.host), fixture.device(&id));
        fixture.pool().during_next_capture(move || host.write_to(&device));
        let torn = fixture.engine.create_snapshot(&snapshot("torn", &id));
        refused!(torn, Error::Precondition(_));
    }
    let quiet = fixture.engine.create_snapshot(&snapshot("quiet", &id)).unwrap();
    assert_eq!(quiet.consistency, Consistency::Crash);
}

#[test]
fn single_btrfs_is_synced_not_frozen() {
    let fixture = Fixture::new();
    let id = fixture.create_as(volume_of("v", FsType::Btrfs));
    fixture.stage(&id);
    fixture.host.clear_log();
    fixture.snapshot("s", &id);
    assert_eq!((fixture.host.count(Op::SyncFilesystem), fixture.host.count(Op::Freeze)), (1, 0));
    // On a pool that copies piece by piece it has to be held all the same.
    fixture.pool().capture_piecemeal();
    fixture.snapshot("t", &id);
    assert_eq!(fixture.host.count(Op::Freeze), 1);
}

#[test]
fn raw_device_is_copied_piecemeal_only_without_writers() {
    let fixture = Fixture::new();
    fixture.pool().capture_piecemeal();
    let id = fixture.create_as(block_volume("v"));
    fixture.engine.stage_volume(&stage_block(&id)).unwrap();
    fixture.engine.publish_volume(&publish_block(&id, TARGET)).unwrap();
    fixture.snapshot("quiet", &id);
    let (host, device) = (Arc::clone(&fixture.host), fixture.device(&id));
    fixture.pool().during_next_capture(move || host.write_to(&device));
    let torn = fixture.engine.create_snapshot(&snapshot("torn", &id));
    refused!(torn, Error::Precondition(_));
    assert_eq!(
        fixture.engine.list_snapshots(&Default::default(), None, 0).unwrap().entries.len(),
        1
    );
}
