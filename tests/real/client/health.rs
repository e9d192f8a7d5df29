//! What is wrong, and what takes space, in the words that the page, the metrics and the doctor have too.

use orlop_sys::{file, tool};
use orlop_tests::*;

use super::Terminal;

#[tokio::test(flavor = "multi_thread")]
async fn lost_data_has_its_reason_everywhere() {
    needs_root!();
    let at = Terminal::new().await;
    let id = at.id(&["volume", "create", "lost", "--size", "64MiB", "--block"]);
    at.ok(&["volume", "create", "well", "--size", "64MiB", "--block"]);
    assert_eq!(at.json(&["volume", "show", "lost"])["problems"], serde_json::json!([]));
    assert!(at.ok(&["volume", "show", "lost"]).contains("condition  normal: "));
    assert!(at.ok(&["node", "info"]).contains("storage     normal"));
    std::fs::remove_file(at.pool.volume_data(&id)).unwrap();

    let listed = at.ok(&["volume", "list"]);
    let row = |name: &str| listed.lines().find(|line| line.contains(name)).unwrap();
    assert!(row(" lost ").contains("abnormal: BackingFileMissing: its data is missing"));
    assert!(row(" well ").contains(" normal "), "{listed}");
    let listed = at.json(&["volume", "list"]);
    let of = |name: &str| listed.as_array().unwrap().iter().find(|it| it["name"] == name).unwrap();
    assert_eq!(of("lost")["problems"][0]["reason"], "BackingFileMissing");
    assert_eq!(of("lost")["problems"][0]["status"], "data-loss");
    assert_eq!(of("well")["problems"], serde_json::json!([]));
    let shown = at.ok(&["volume", "show", "lost"]);
    let line = "condition  abnormal: BackingFileMissing (data-loss): its data is missing";
    assert!(shown.contains(line), "{shown}");

    let status = at.ok(&["pool", "status"]);
    assert!(status.contains("pool default: 1 volume with BackingFileMissing"), "{status}");
    let status = at.json(&["pool", "status"]);
    assert_eq!((&status[0]["state"], &status[0]["abnormal_volumes"]), (&"up".into(), &1.into()));
    assert_eq!(status[0]["volumes_by_reason"]["BackingFileMissing"], 1);
}

/// The controller knows nothing of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_could_not_be_staged_says_why() {
    needs_root!();
    let at = Terminal::new().await;
    let client = at.daemon.client();
    let volume = client.create("data").size(512 * MIB).fs("ext4").done().await;
    let node = client.on_node(&volume, mount("ext4"));
    node.up().await;
    node.down().await;
    Pattern::new(0).write_at(&at.pool.volume_data(&node.id), 0, MIB);
    expect_code(node.stage().await, Code::DataLoss);
    let shown = at.ok(&["volume", "show", "data"]);
    assert!(shown.contains("abnormal: on the node, StageFailed (inaccessible): "), "{shown}");
    let shown = at.json(&["volume", "show", "data"]);
    assert_eq!(shown["problems"], serde_json::json!([]));
    assert_eq!(shown["problems_on_node"][0]["reason"], "StageFailed");
    node.unstage().await.unwrap();
    assert_eq!(at.json(&["volume", "show", "data"])["problems_on_node"], serde_json::Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_pool_is_seen_on_pool_node_and_volume() {
    needs_root!();
    let at = Terminal::new().await;
    at.ok(&["volume", "create", "data", "--size", "64MiB", "--block"]);
    let hog = std::fs::File::create_new(at.pool.path.join("hog")).unwrap();
    let free = file::space(&at.pool.path).unwrap().free;
    file::preallocate(&hog, 0, free - 8 * MIB).unwrap();
    let status = at.json(&["pool", "status"]);
    assert!(status[0]["problem"].as_str().unwrap().contains("floor"), "{status}");
    assert_eq!((&status[0]["volumes"], &status[0]["available_bytes"]), (&1.into(), &0.into()));
    assert_eq!(status[0]["volumes_by_reason"]["PoolFull"], 1);
    assert_eq!(at.json(&["node", "info"])["problems"][0]["reason"], "PoolFull");
    assert!(at.ok(&["node", "info"]).contains("storage     PoolFull (degraded): "));
    assert!(at.ok(&["volume", "list"]).contains("abnormal: PoolFull: "));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_copies_take_and_share_is_shown() {
    needs_root!();
    let at = Terminal::new().await;
    let id = at.id(&["volume", "create", "data", "--size", "64MiB", "--block"]);
    let data = at.pool.volume_data(&id);
    Pattern::new(1).write_at(&data, 0, 8 * MIB);
    at.ok(&["snapshot", "create", "data", "monday"]);
    at.ok(&["snapshot", "restore", "monday", "back", "--block"]);
    // Half of the volume is its own then, and the snapshot shares all with what was restored from it.
    Pattern::new(2).write_at(&data, 0, 4 * MIB);
    let shown = at.ok(&["volume", "show", "data"]);
    let used = "used       8.0 MiB (8388608 bytes): 4.0 MiB shared, 4.0 MiB its own";
    assert!(shown.contains(used), "{shown}");
    assert!(shown.contains("8.0 MiB used: 8.0 MiB shared, 0 bytes its own"), "{shown}");
    at.ok(&["volume", "delete", "back", "--yes"]);
    let shown = at.json(&["volume", "show", "data"]);
    let snapshot = &shown["copies"][0];
    assert_eq!(
        (&snapshot["used_bytes"], &shown["exclusive_bytes"]),
        (&(8 * MIB).into(), &(4 * MIB).into())
    );
    assert_eq!(snapshot["exclusive_bytes"], 4 * MIB);
    let shown = at.ok(&["snapshot", "show", "monday"]);
    assert!(shown.contains("4.0 MiB shared, 4.0 MiB its own"), "{shown}");
    // That much deleting it gives back.
    let free = || at.json(&["pool", "status"])[0]["free_bytes"].as_u64().unwrap();
    let before = free();
    at.ok(&["snapshot", "delete", "monday", "--yes"]);
    let given_back = free().saturating_sub(before);
    assert!((4 * MIB..5 * MIB).contains(&given_back), "{given_back}");
}

/// Only the node sees it. A volume that is not staged is not asked for.
#[tokio::test(flavor = "multi_thread")]
async fn the_list_has_what_the_node_says() {
    needs_root!();
    let at = Terminal::new().await;
    let client = at.daemon.client();
    let volume = client.create("staged").size(320 * MIB).fs("xfs").done().await;
    at.ok(&["volume", "create", "idle", "--size", "64MiB", "--block"]);
    let node = client.on_node(&volume, mount("xfs"));
    node.up().await;
    let row = || {
        let listed = at.ok(&["volume", "list"]);
        let idle = listed.lines().find(|line| line.contains(" idle ")).unwrap();
        assert!(idle.contains(" normal "), "{listed}");
        listed.lines().find(|line| line.contains(" staged ")).unwrap().to_owned()
    };
    assert!(row().contains(" normal "), "{}", row());
    tool::run("mount", ["-o", "remount,ro", node.staging.to_str().unwrap()]).unwrap();
    assert!(row().contains("abnormal: FilesystemReadOnly: "), "{}", row());
    let listed = at.json(&["volume", "list"]);
    let entry = listed.as_array().unwrap().iter().find(|it| it["name"] == "staged").unwrap();
    assert_eq!(entry["problems"], serde_json::json!([]));
    assert_eq!(entry["problems_on_node"][0]["status"], "degraded");
    tool::run("mount", ["-o", "remount,rw", node.staging.to_str().unwrap()]).unwrap();
    tool::run("umount", [&node.target]).unwrap();
    assert!(row().contains("abnormal: MountMissing: "), "{}", row());
    node.publish().await.unwrap();
    assert!(row().contains(" normal "), "{}", row());
    node.down().await;
}
