//! What is listed and shown, in every form.

use orlop_tests::*;

use super::Terminal;

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_is_created_listed_and_shown_in_every_form() {
    needs_root!();
    let at = Terminal::new().await;
    assert_eq!(at.ok(&["volume", "list"]), "there are no volumes\n");
    assert_eq!(at.ok(&["volume", "list", "-o", "json"]), "[]\n");
    assert_eq!(at.ok(&["volume", "list", "-o", "name"]), "");
    let made = at.ok(&["volume", "create", "data", "--size", "1GiB", "--fs", "ext4"]);
    let id = at.id(&["volume", "create", "data", "--size", "1GiB", "--fs", "ext4"]);
    assert_eq!(made, format!("created volume data ({id}), 1.0 GiB\n"));

    let table = at.ok(&["volume", "list"]);
    let rows: Vec<&str> = table.lines().collect();
    assert!(rows[0].starts_with("ID ") && rows.len() == 2, "{table}");
    assert!(rows[1].starts_with(&id) && rows[1].contains(" data ") && rows[1].contains("1.0 GiB"));
    assert!(!table.contains('\x1b'), "colours without a terminal: {table:?}");
    let listed = at.json(&["volume", "list"]);
    assert_eq!(listed[0]["id"], *id);
    assert_eq!(listed[0]["name"], "data");
    assert_eq!(listed[0]["size_bytes"], GIB);
    let used = listed[0]["used_bytes"].as_u64().unwrap();
    assert!(used > 0 && used < GIB, "thin: {used}");
    assert_eq!(at.json(&["volume", "show", "data"])["used_bytes"], used);
    assert_eq!(listed[0]["condition"]["abnormal"], false);
    let yaml = at.ok(&["volume", "list", "--output", "yaml"]);
    assert!(yaml.contains(&format!("  id: \"{id}\"\n")), "{yaml}");
    assert!(yaml.contains("  size_bytes: 1073741824\n"), "{yaml}");

    let shown = at.ok(&["volume", "show", "data"]);
    for part in [
        &*id,
        "1073741824 bytes",
        "csi.orlop.io/node=test-node",
        "limits     none",
        "copies     none",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let node = at.json(&["node", "info"]);
    assert_eq!(node["node_id"], "test-node");
    assert_eq!(node["topology"]["csi.orlop.io/node"], "test-node");
    at.ok(&["volume", "delete", "data", "--yes"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_new_volume_has_beyond_the_request_is_explained() {
    needs_root!();
    let at = Terminal::new().await;
    let said = at.ok(&["volume", "create", "idle", "--size", "50MiB", "--fs", "xfs"]);
    assert!(said.ends_with(", 300.0 MiB (raised from 50.0 MiB: the least for xfs)\n"), "{said}");
    let said = at.ok(&["volume", "create", "odd", "--size", "2000000", "--block"]);
    assert!(said.ends_with(", 2.0 MiB (rounded up from 2000000 bytes)\n"), "{said}");
    let shown = at.ok(&["volume", "show", "idle"]);
    assert!(shown.contains(" shared with the template of new volumes, "), "{shown}");
    at.ok(&["snapshot", "create", "idle", "cut"]);
    let shown = at.ok(&["volume", "show", "idle"]);
    assert!(shown.contains(" shared, ") && !shown.contains("template"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_names_and_unique_beginnings_find_a_volume() {
    needs_root!();
    let at = Terminal::new().await;
    let create = |name| at.id(&["volume", "create", name, "--size", "7.5MiB", "--block"]);
    let (first, _second) = (create("postgres-data"), create("postgres-log"));
    let digest = first.rsplit('-').next().unwrap();
    for given in [&*first, "postgres-data", "postgres-d", &digest[..10], &first[..20]] {
        assert_eq!(at.id(&["volume", "show", given]), first, "{given}");
    }
    let why = at.fails(2, &["volume", "show", "postgres"]);
    assert!(why.contains("postgres-data (") && why.contains("postgres-log ("), "{why}");
    let why = at.fails(3, &["volume", "show", "postgras-data"]);
    assert!(why.contains("did you mean postgres-data ("), "{why}");
    let why = at.fails(3, &["volume", "delete", "nothing", "--yes"]);
    assert!(why.contains("there is no volume \"nothing\""), "{why}");
    at.fails(2, &["volume", "show", ""]);
    // What destroys needs the whole name: this would be another volume once the call is repeated.
    let why = at.fails(3, &["volume", "delete", "postgres-d", "--yes"]);
    assert!(why.contains("did you mean postgres-data"), "{why}");
    let again = at.ok(&["volume", "create", "postgres-data", "--size", "7.5MiB", "--block"]);
    assert!(again.contains("exists already"), "{again}");
    at.ok(&["volume", "delete", "postgres-data", "postgres-log", "postgres-data", "-y"]);
    assert_eq!(at.volumes(), 0);
}

/// More than fit on a page of the list.
#[tokio::test(flavor = "multi_thread")]
async fn every_page_of_a_long_list_is_read() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let daemon = Daemon::start(&pool).await;
    let client = daemon.client();
    let mut made = Vec::new();
    for index in 0..505 {
        made.push(
            client.create(&format!("volume {index}")).size(MIB).block().done().await.volume_id,
        );
    }
    let at = Terminal { pool, daemon };
    // The beginning of a name is enough, however many there are.
    let last = at.id(&["volume", "create", "wanted-by-its-beginning", "--size", "1MiB", "--block"]);
    assert_eq!(at.id(&["volume", "show", "wanted-by"]), last);
    let all = at.json(&["volume", "list"]);
    assert!(all.as_array().unwrap().iter().all(|it| it["name"].is_string()), "{all}");
    made.push(last);
    let printed = at.ok(&["volume", "list", "-o", "name"]);
    let mut listed: Vec<&str> = printed.lines().collect();
    listed.sort_unstable();
    made.sort_unstable();
    assert_eq!(listed, made);
    for id in &made {
        client.delete(id).await.unwrap();
    }
}

/// As `| head` does: no message, and no failure.
#[tokio::test(flavor = "multi_thread")]
async fn output_that_is_not_read_is_no_failure() {
    needs_root!();
    let at = Terminal::new().await;
    let endpoint = format!("CSI_ENDPOINT=unix://{}", at.daemon.launch().socket().display());
    let command = format!("{} volume list -o json 2>&1 >&3 3>&-", binary().display());
    // The reader is gone before anything is written.
    let script =
        format!("set -o pipefail; {{ sleep 0.2; {command}; }} 3>&1 | true; echo status $?");
    let script = format!("{{ {script}; }} 2>&1");
    let output = orlop_sys::tool::run("env", [endpoint.as_str(), "bash", "-c", &script]).unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "status 0\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_list_is_shown_again() {
    needs_root!();
    let at = Terminal::new().await;
    let output = at.pool.scratch().join("watched");
    std::fs::write(&output, "").unwrap();
    let watching =
        at.daemon.launch().begin(&["volume", "list", "-o", "name", "--watch=1"], &output);
    let id = at.id(&["volume", "create", "new", "--size", "8MiB", "--block"]);
    let times = || std::fs::read_to_string(&output).unwrap().matches(&id).count();
    crate::daemon::hung::until("it is shown twice", || async { times() >= 2 }).await;
    drop(watching);
    at.ok(&["volume", "delete", "new", "--yes"]);
}

/// Nothing is known of it but its id.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_volume_hides_no_name_and_keeps_no_directory() {
    needs_root!();
    let mut at = Terminal::new().await;
    for name in ["one", "two", "three"] {
        at.ok(&["volume", "create", name, "--size", "64MiB", "--fs", "ext4"]);
    }
    let listed = at.json(&["volume", "list"]);
    let damaged = listed[0]["id"].as_str().unwrap();
    at.daemon.terminate();
    std::fs::write(at.pool.volume_data(damaged).with_file_name("record.json"), "{").unwrap();
    at.daemon.restart().await;
    let listed = at.json(&["volume", "list"]);
    let names = |index: usize| listed[index]["name"].as_str();
    assert_eq!((listed[0]["id"].as_str(), names(0)), (Some(damaged), None));
    assert!(names(1).is_some() && names(2).is_some(), "{listed}");

    let target = at.path("mnt");
    let why = at.fails(1, &["volume", "mount", damaged, &target]);
    assert!(why.contains("(DATA_LOSS)") && !why.contains("undone"), "{why}");
    let why = at.fails(2, &["volume", "unmount", &target]);
    assert!(why.contains("nothing is mounted by hand"), "{why}");
    at.ok(&["volume", "mount", names(1).unwrap(), &target]);
    at.ok(&["volume", "unmount", &target]);
    // The name that is not known may begin in the same way.
    let beginning = &names(2).unwrap()[..2];
    let why = at.fails(2, &["volume", "show", beginning]);
    assert!(why.contains("give the whole name"), "{why}");
}
