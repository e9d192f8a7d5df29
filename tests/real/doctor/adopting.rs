//! A disk that comes from another machine.

use std::fs;
use std::time::{Duration, Instant};

use orlop_tests::*;

use crate::doctor::fixture::{Fixture, footprint};

/// With a mounted volume's worth of data, published to its node, as if that had died.
async fn from_elsewhere() -> (Fixture, v1::Volume) {
    let mut fixture = Fixture::new(PoolFs::Xfs).await;
    let volume = fixture.client.create("v").size(64 * MIB).fs("ext4").done().await;
    let capability = mount("ext4");
    let client = &fixture.client;
    client.controller_publish(&volume.volume_id, "test-node", capability, false).await.unwrap();
    let node = client.on_node(&volume, mount("ext4"));
    node.up().await;
    Pattern::new(5).write(&node.data_path(), 4 * MIB);
    node.down().await;
    fixture.daemon.terminate();
    (fixture, volume)
}

fn here(fixture: &Fixture) -> Launch {
    let launch = fixture.daemon.launch().clone();
    launch.env("ORLOP_NODE_ID", "new-node").without_env("ORLOP_POOL")
}

#[tokio::test(flavor = "multi_thread")]
async fn adopted_pool_serves_its_volumes() {
    needs_root!();
    let (fixture, volume) = from_elsewhere().await;
    let (id, path) = (&volume.volume_id, fixture.pool.path.to_str().unwrap());
    let print = fingerprint(&fixture.pool.volume_data(id));
    let before = footprint(&fixture.pool.path);
    let here = here(&fixture);

    let shown = here.run(&["pool", "adopt", path]);
    assert_eq!(shown.status.code(), Some(1), "{shown:?}");
    for word in [id.as_str(), "node=test-node", "published to test-node", "node=new-node"] {
        assert!(shown.stdout.contains(word), "{word} in {shown:?}");
    }
    assert_eq!(footprint(&fixture.pool.path), before, "nothing is done without --yes");

    let adopted = here.run(&["pool", "adopt", path, "--yes"]);
    assert_eq!(adopted.status.code(), Some(0), "{adopted:?}");
    let again = here.run(&["pool", "adopt", path, "--yes"]);
    assert_eq!(again.status.code(), Some(0), "{again:?}");
    assert!(!again.stdout.contains("test-node"), "{again:?}");
    assert_eq!(fingerprint(&fixture.pool.volume_data(id)), print, "byte for byte");

    let daemon = here.env("ORLOP_POOL", &fixture.pool.path).start().await;
    let client = daemon.client();
    let listed = client.list_volumes().await.unwrap();
    let listed = listed[0].volume.clone().unwrap();
    assert_eq!(&listed.volume_id, id);
    let segments = &listed.accessible_topology[0].segments;
    assert_eq!(segments["csi.orlop.io/node"], "new-node");
    client.controller_publish(id, "new-node", mount("ext4"), false).await.unwrap();
    let node = client.on_node(&listed, mount("ext4"));
    node.up().await;
    Pattern::new(5).check(&node.data_path(), 4 * MIB);
    node.down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_pool_that_is_served_here_is_refused() {
    needs_root!();
    let (mut fixture, _) = from_elsewhere().await;
    let copy = fixture.pool.scratch().ensure_dir("copy");
    fs::copy(fixture.pool.path.join("orlop.pool"), copy.join("orlop.pool")).unwrap();
    let launch = fixture.daemon.launch().clone();
    let refused = launch.run(&["pool", "adopt", copy.to_str().unwrap(), "--yes"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(refused.stderr.contains("one is a copy of the other"), "{refused:?}");

    fixture.daemon.restart().await;
    let path = fixture.pool.path.to_str().unwrap();
    let used = launch.run(&["pool", "adopt", path, "--yes"]);
    assert_eq!(used.status.code(), Some(1), "{used:?}");
    assert!(used.stderr.contains("a daemon on this machine serves it"), "{used:?}");
    let listed = launch.run(&["pool", "list"]);
    assert!(listed.stdout.contains(path), "{listed:?}");
    let shown = launch.run(&["pool", "show", path]);
    assert!(shown.stdout.contains("1 volume,"), "{shown:?}");
    let json = |words: &[&str]| -> serde_json::Value {
        let ran = launch.run(&[words, &["--output", "json"]].concat());
        serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
    };
    let listed = json(&["pool", "list"]);
    assert_eq!((&listed[0]["at"], &listed[0]["kind"]), (&path.into(), &"image".into()));
    assert!(listed[0]["free_bytes"].as_u64().unwrap() > 0, "{listed}");
    let shown = json(&["pool", "show", path]);
    assert_eq!((&shown["id"], &shown["in_use"]), (&listed[0]["id"], &true.into()));
    assert_eq!(shown["volumes"].as_array().unwrap().len(), 1, "{shown}");
    let ids = launch.run(&["pool", "list", "--output", "name"]).stdout;
    assert_eq!(ids.trim_end(), listed[0]["id"].as_str().unwrap());
    let nothing = launch.run(&["pool", "show", "/proc"]);
    assert_eq!(nothing.status.code(), Some(2), "{nothing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_hangs_hides_no_other() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Directory).await;
    fixture.daemon.terminate();
    let scratch = fixture.pool.scratch();
    let (disk, well) = (scratch.ensure_dir("disk"), fixture.pool.path.to_str().unwrap());
    let hung = disk.join("pool");
    let (settings, output) = (scratch.join("several.toml"), scratch.join("output"));
    let table = |name, path: &str| format!("[[pool]]\nname = \"{name}\"\npath = \"{path}\"\n");
    let text = table("hung", hung.to_str().unwrap()) + &table("well", well);
    fs::write(&settings, text).unwrap();
    let launch = fixture.daemon.launch().clone().without_env("ORLOP_POOL");
    let launch = launch.env("ORLOP_CONFIG", &settings);
    let _silent = SilentMount::over(&disk);
    for (words, expected) in [
        (&["pool", "list"][..], ["hung image", "well image"]),
        (&["pool", "show", well], ["pool at", "0 volumes"]),
        (
            &["pool", "adopt", well, "--yes"],
            ["pool hung is a copy of this one is not known", "adopted by"],
        ),
    ] {
        fs::write(&output, "").unwrap();
        let mut running = launch.begin(words, &output);
        let printed = || fs::read_to_string(&output).unwrap();
        let deadline = Instant::now() + Duration::from_secs(120);
        while !running.has_ended() {
            assert!(Instant::now() < deadline, "{words:?}: {}", printed());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        for expected in expected {
            assert!(printed().contains(expected), "{words:?}: {}", printed());
        }
    }
}

/// Of a pool that cannot be read it is not known whose copy it is; that is said, and no more.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_cannot_be_read_hides_no_other() {
    needs_root!();
    let sick = TestPool::new(PoolFs::Directory, 0);
    let well = sick.beside("well", PoolFs::Directory, 0);
    let mut daemon = Launch::on_several(&[("sick", &sick, ""), ("well", &well, "")]).start().await;
    daemon.terminate();
    let header = sick.path.join("orlop.pool");
    let text = fs::read_to_string(&header).unwrap();
    let launch = daemon.launch().clone().env("ORLOP_CONFIG", sick.scratch().join("orlop.toml"));
    let id = launch.run(&["pool", "list"]);
    assert_eq!(id.status.code(), Some(0), "{id:?}");
    for damaged in [String::new(), text.replace("\"format\":1", "\"format\":2")] {
        fs::write(&header, &damaged).unwrap();
        let listed = launch.run(&["pool", "list"]);
        assert_eq!(listed.status.code(), Some(2), "{listed:?}");
        let lines: Vec<&str> = listed.stdout.lines().collect();
        assert_eq!(lines.len(), 2, "{listed:?}");
        assert!(lines[0].contains("sick image") && lines[0].contains("orlop.pool"), "{listed:?}");
        // The free space may differ by now.
        let other = lines[1].split(", ").next().unwrap();
        assert!(id.stdout.contains(other) && lines[1].contains(" free of "), "{listed:?}");
        let adopted = launch.run(&["pool", "adopt", well.path.to_str().unwrap(), "--yes"]);
        assert_eq!(adopted.status.code(), Some(0), "{adopted:?}");
        assert!(adopted.stdout.contains("sick"), "{adopted:?}");
    }
    fs::write(&header, &text).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_adoption_may_be_interrupted_anywhere() {
    needs_root!();
    let (fixture, volume) = from_elsewhere().await;
    let path = fixture.pool.path.to_str().unwrap();
    let crash = fixture.pool.scratch().ensure_dir("crash");
    let record = fixture.pool.volume_record(&volume.volume_id);
    let served_by = fixture.pool.path.join("served-by.json");
    let (text, origin) = (fs::read(&record).unwrap(), fs::read(&served_by).unwrap());
    let armed = here(&fixture).env("ORLOP_TEST_CRASH", &crash);
    for effects in 0_u32.. {
        fs::write(&record, &text).unwrap();
        fs::write(&served_by, &origin).unwrap();
        fs::write(crash.join("at"), effects.to_string()).unwrap();
        let ended = armed.run(&["pool", "adopt", path, "--yes"]).status.code();
        let again = here(&fixture).run(&["pool", "adopt", path, "--yes"]);
        assert_eq!(again.status.code(), Some(0), "{again:?}");
        let left = fs::read_to_string(&record).unwrap() + &fs::read_to_string(&served_by).unwrap();
        assert!(!left.contains("test-node") && left.contains("new-node"), "{left}");
        if ended.is_some() {
            assert!(effects > 6, "no effect was interrupted");
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_whose_publications_stay_is_not_adopted() {
    needs_root!();
    let (fixture, volume) = from_elsewhere().await;
    let path = fixture.pool.path.to_str().unwrap();
    let served_by = fixture.pool.path.join("served-by.json");
    let origin = fs::read(&served_by).unwrap();
    // Where the new record is gathered.
    let obstacle = fixture.home(&volume.volume_id).join(".record.json.new");
    fs::create_dir(&obstacle).unwrap();
    let refused = here(&fixture).run(&["pool", "adopt", path, "--yes"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(refused.stdout.contains("not repaired"), "{refused:?}");
    assert!(refused.stderr.contains("not all publications could be cleared"), "{refused:?}");
    assert_eq!(fs::read(&served_by).unwrap(), origin);
    fs::remove_dir(&obstacle).unwrap();
    let adopted = here(&fixture).run(&["pool", "adopt", path, "--yes"]);
    assert_eq!(adopted.status.code(), Some(0), "{adopted:?}");
}
