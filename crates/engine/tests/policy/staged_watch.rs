//! What goes wrong with volumes in use is known without any call.

use orlop_engine::Engine;
use orlop_host::MemoryHost;
use orlop_host::memory::Op;
use orlop_model::HealthReason::{
    self, FilesystemErrors, FilesystemReadOnly, MountMissing, PoolFull, WritesLost,
};
use orlop_model::{HostMounts, Problem, VolumeId};

use crate::fixture::*;

/// As the page and the metrics have it.
fn known(engine: &Engine, id: &VolumeId) -> Vec<HealthReason> {
    let condition = engine.conditions_by_id(std::slice::from_ref(id)).remove(0);
    let reasons: Vec<_> = condition.problems().iter().map(|problem| problem.reason).collect();
    let figures = engine.pool_figures().remove(0);
    let counts = figures.objects.unwrap();
    for reason in &reasons {
        assert_eq!(counts.volumes_with(*reason), 1, "{reason:?}");
    }
    assert_eq!(counts.abnormal_volumes, usize::from(!reasons.is_empty()));
    reasons
}

fn in_use() -> (Fixture, VolumeId) {
    let fixture = Fixture::new();
    let id = fixture.create("v");
    fixture.stage(&id);
    fixture.publish(&id);
    (fixture, id)
}

#[test]
fn lost_writes_are_found_without_calls() {
    let (fixture, id) = in_use();
    fixture.engine.check_staged();
    assert_eq!(known(&fixture.engine, &id), []);
    fixture.host.lose_writes(&path(STAGING), "No space left on device");
    // Not while nothing suggests it: a check syncs the volume.
    fixture.engine.check_staged();
    assert_eq!(known(&fixture.engine, &id), []);
    let full = Problem::new(PoolFull, "it is below its floor");
    fixture.pool().set_problems(vec![full]);
    fixture.engine.check_staged();
    assert_eq!(known(&fixture.engine, &id), [WritesLost]);
    assert_eq!(fixture.engine.volume_problems(&id).unwrap()[0].reason, WritesLost);
}

#[test]
fn a_broken_filesystem_is_found_without_calls() {
    let (fixture, id) = in_use();
    let device = fixture.device(&id);
    fixture.host.turn_filesystem_read_only(&device);
    fixture.host.count_filesystem_error(&device);
    fixture.engine.check_staged();
    assert_eq!(known(&fixture.engine, &id), [], "it may be in the middle of something");
    fixture.engine.check_staged();
    assert_eq!(known(&fixture.engine, &id), [FilesystemReadOnly, FilesystemErrors]);
    // From elsewhere nothing is wrong with it.
    assert_eq!(fixture.engine.volume_problems(&id).unwrap(), []);

    fixture.unpublish(&id, TARGET).unwrap();
    fixture.unstage(&id).unwrap();
    assert_eq!(known(&fixture.engine, &id), []);
}

#[test]
fn a_missing_mount_is_known_until_it_is_back() {
    for missing in [STAGING, TARGET] {
        let (fixture, id) = in_use();
        fixture.host.ensure_unmounted(&path(missing)).unwrap();
        fixture.engine.check_staged();
        fixture.engine.check_staged();
        assert_eq!(known(&fixture.engine, &id), [MountMissing], "{missing}");
        match missing {
            STAGING => fixture.stage(&id),
            _ => fixture.publish(&id),
        }
        fixture.engine.check_staged();
        assert_eq!(known(&fixture.engine, &id), [], "{missing}");
    }
}

/// The node record is written before the mount.
#[test]
fn a_stage_under_way_is_no_problem() {
    let host = MemoryHost::default();
    let fixture = Fixture::on_host(host);
    let id = fixture.create("v");
    let engine = fixture.engine.clone();
    fixture.host.during_next(Op::Mount, move || {
        engine.check_staged();
        engine.check_staged();
    });
    fixture.stage(&id);
    assert_eq!(known(&fixture.engine, &id), []);
}

#[test]
fn a_hung_volume_does_not_hide_others() {
    let fixture = Fixture::new();
    let ids = [fixture.create("a"), fixture.create("b")];
    let staging = ["/staging/a", "/staging/b"];
    for (id, at) in ids.iter().zip(staging) {
        let stage = orlop_engine::request::StageVolume { path: path(at), ..stage(id) };
        fixture.engine.stage_volume(&stage).unwrap();
        fixture.host.ensure_unmounted(&path(at)).unwrap();
    }
    let (release, released) = std::sync::mpsc::channel::<()>();
    fixture.host.during_next(Op::LookUp, move || {
        let _ = released.recv();
    });
    fixture.engine.check_staged();
    fixture.engine.check_staged();
    let mut all =
        [0, 1].map(|index| fixture.engine.conditions_by_id(&ids[index..=index]).remove(0));
    all.sort_by_key(|condition| condition.is_abnormal());
    assert!(!all[0].is_abnormal() && all[1].is_abnormal(), "{all:?}");
    drop(release);
}
