use std::process::{Command, Stdio};

use orlop_model::{ContentSource, Error, NewVolume, Pool, VolumeId};
use orlop_sys::ceph::Update;

use crate::fixture::{
    Fixture, MIB, byte_at, cluster, copy_of, new_volume, run, settled, snapshot, until, volume,
    write,
};

#[test]
fn a_copy_is_of_one_instant_and_independent_of_its_source() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open_collecting_garbage();
    let source = volume(&pool, "a", 16 * MIB);
    let image = fixture.image(&source.id);
    write(&image, 0, 1, MIB);
    let new = NewVolume {
        source: Some(ContentSource::Volume(source.id.clone())),
        ..new_volume(&pool, "b", 24 * MIB)
    };
    let mut draft = pool.provisioner().begin_volume(&new).unwrap();
    draft.capture().unwrap();
    write(&image, 0, 2, MIB);
    let copy = draft.commit().unwrap();
    assert_eq!(pool.catalogue().volume(&copy.id).unwrap(), Some(copy.clone()));
    assert_eq!(byte_at(&fixture.image(&copy.id), 0, MIB), 1);
    assert_eq!(fixture.image(&copy.id).size().unwrap(), 24 * MIB);
    // librbd gave it the metadata of its source.
    let metadata = fixture.rbd_json(&["image-meta", "list", &copy.id.to_string()]);
    assert_eq!(metadata.as_object().unwrap().len(), 1, "{metadata}");

    drop(image);
    pool.provisioner().ensure_no_volume(&source.id).unwrap();
    assert_eq!(byte_at(&fixture.image(&copy.id), 0, MIB), 1);
    pool.provisioner().ensure_no_volume(&copy.id).unwrap();
    until("all is free", || fixture.is_empty());
}

#[test]
fn a_dropped_copy_leaves_its_source_as_it_was() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let source = volume(&pool, "a", 16 * MIB);
    let from = ContentSource::Volume(source.id.clone());
    let new = NewVolume { source: Some(from), ..new_volume(&pool, "b", 16 * MIB) };
    let mut draft = pool.provisioner().begin_volume(&new).unwrap();
    draft.capture().unwrap();
    assert_eq!(fixture.image(&source.id).snapshots().unwrap().len(), 1);
    drop(draft);
    assert_eq!(fixture.image(&source.id).snapshots().unwrap(), []);
    assert_eq!(fixture.image_names(), [source.id.to_string()]);
}

#[test]
fn copies_of_copies_are_flattened_before_they_are_too_deep() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open_collecting_garbage();
    let mut last = volume(&pool, "0", 8 * MIB);
    write(&fixture.image(&last.id), 0, 9, MIB);
    let mut all = vec![last.clone()];
    for depth in 1..=5 {
        let from = ContentSource::Volume(last.id.clone());
        last = copy_of(&pool, &depth.to_string(), from, 8 * MIB).unwrap();
        all.push(last.clone());
    }
    assert!(fixture.image(&all[4].id).parent().unwrap().is_some(), "a few levels are left alone");
    until("the deepest is flat", || fixture.image(&last.id).parent().unwrap().is_none());
    assert_eq!(byte_at(&fixture.image(&last.id), 0, MIB), 9);
    for record in all {
        pool.provisioner().ensure_no_volume(&record.id).unwrap();
    }
    until("all is free", || fixture.is_empty());
}

/// A flatten has the image open. That is no use of the volume: it ends, and is waited for.
#[test]
fn volume_is_deletable_only_after_flattening() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let record = volume(&pool, "a", 8 * MIB);
    let (io, request) = (fixture.io(), format!("flatten.{}", record.id));
    io.ensure_object("orlop.records").unwrap();
    io.update("orlop.records", &Update::default().set(&request, b"1")).unwrap();
    let flattening = fixture.image(&record.id);
    let refused = pool.provisioner().ensure_no_volume(&record.id);
    assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?}");
    assert_eq!(pool.catalogue().volume(&record.id).unwrap(), Some(record.clone()));
    flattening.flatten().unwrap();
    drop(flattening);
    pool.provisioner().ensure_no_volume(&record.id).unwrap();
    assert_eq!(pool.catalogue().volume(&record.id).unwrap(), None);

    // The request that is left does no harm, and goes with the next look at it.
    let pool = fixture.open_collecting_garbage();
    until("all is free", || fixture.is_empty());
    until("the request is gone", || io.omap_get("orlop.records", &request).unwrap().is_none());
    drop(pool);
}

/// Restored, snapshotted and deleted again and again, quicker than anything was flattened.
#[test]
fn a_snapshot_whose_chain_is_too_deep_is_restored_in_the_end() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let mut last = volume(&pool, "0", 8 * MIB);
    write(&fixture.image(&last.id), 0, 9, MIB);
    let mut taken = snapshot(&pool, "0", &last);
    for depth in 1..=12 {
        pool.provisioner().ensure_no_volume(&last.id).unwrap();
        let from = ContentSource::Snapshot(taken.id.clone());
        last = copy_of(&pool, &depth.to_string(), from, 8 * MIB).unwrap();
        taken = snapshot(&pool, &depth.to_string(), &last);
    }
    pool.provisioner().ensure_no_volume(&last.id).unwrap();
    // As daemons do that find no volume of that name any more.
    let requests = fixture.io().omap_list("orlop.records", "", "flatten.", 0).unwrap();
    let update = requests.iter().fold(Update::default(), |update, (key, _)| update.remove(key));
    fixture.io().update("orlop.records", &update).unwrap();

    let from = || ContentSource::Snapshot(taken.id.clone());
    let refused = copy_of(&pool, "restored", from(), 8 * MIB);
    assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?}");
    let pool = fixture.open_collecting_garbage();
    let restored = settled(|| copy_of(&pool, "restored", from(), 8 * MIB));
    assert_eq!(byte_at(&fixture.image(&restored.id), 0, MIB), 9);
}

/// Of a client that has written to the image and was killed; the cluster has noticed.
fn killed_writer(fixture: &Fixture, id: &VolumeId) -> String {
    let image = format!("rbd/{}/{id}", fixture.namespace);
    let endless = ["bench", "--io-type", "write", "--io-size", "4096", "--io-total", "100G"];
    let mut writer = Command::new("rbd")
        .arg("--conf")
        .arg(cluster().join("ceph.conf"))
        .args(endless)
        .arg(&image)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let locks = || fixture.rbd_json(&["lock", "ls", &id.to_string()]);
    until("it has the lock", || locks().as_array().is_some_and(|locks| !locks.is_empty()));
    let address = locks()[0]["address"].as_str().unwrap().to_owned();
    writer.kill().unwrap();
    writer.wait().unwrap();
    let status = || fixture.rbd_json(&["status", &id.to_string()]);
    until("it watches no more", || status()["watchers"].as_array().unwrap().is_empty());
    address
}

/// librbd would block it for an hour, within which it could not be fenced for good.
#[test]
fn taking_the_lock_of_a_dead_client_fences_it_for_good() {
    let Some(fixture) = Fixture::new() else { return };
    let pool = fixture.open();
    let source = volume(&pool, "source", 8 * MIB);
    for doing in ["flatten", "reclaim"] {
        let from = ContentSource::Volume(source.id.clone());
        let copy = copy_of(&pool, doing, from, 8 * MIB).unwrap();
        let address = killed_writer(&fixture, &copy.id);
        if doing == "reclaim" {
            pool.provisioner().ensure_reclaimed(&copy.id).unwrap();
        } else {
            let request = format!("flatten.{}", copy.id);
            let update = Update::default().set(&request, b"1");
            fixture.io().update("orlop.records", &update).unwrap();
            let _collector = fixture.open_collecting_garbage();
            until("it is flat", || fixture.image(&copy.id).parent().unwrap().is_none());
        }
        let blocked = run("ceph", &["osd", "blocklist", "ls"]);
        let entry = blocked.lines().find(|line| line.contains(&address));
        let entry = entry.unwrap_or_else(|| panic!("{doing}: {address} is not in {blocked}"));
        let year = |text: &str| text.split_once('-').unwrap().0.parse::<u32>().unwrap();
        let until = year(entry.split(' ').nth(1).unwrap());
        let since = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
        assert!(u64::from(until) > 1970 + since / 31_556_952 + 1, "{doing}: {entry}");
    }
}
