//! Group snapshots.

use orlop_tests::*;

use super::Terminal;

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_taken_listed_shown_and_deleted() {
    needs_root!();
    let at = Terminal::new().await;
    for name in ["one", "two"] {
        at.ok(&["volume", "create", name, "--size", "16MiB", "--block"]);
    }
    at.ok(&["group", "create", "both", "one", "two", "--dry-run"]);
    assert_eq!(at.ok(&["group", "list"]), "there are no group snapshots\n");
    let made = at.json(&["group", "create", "both", "one", "two"]);
    let id = made["id"].as_str().unwrap();
    assert_eq!(made["snapshots"].as_array().unwrap().len(), 2);
    assert!(made["snapshots"][0]["consistency"].is_string(), "{made}");
    let said = at.ok(&["group", "create", "both", "one", "two"]);
    assert!(said.starts_with("nothing was done; this group snapshot exists already: "), "{said}");
    assert_eq!(at.id(&["group", "list"]), id);
    assert_eq!(at.id(&["group", "show", "both"]), id);
    let shown = at.json(&["group", "show", &id[..14]]);
    assert_eq!(shown["snapshots"].as_array().unwrap().len(), 2);
    for index in 0..2 {
        let guarantee =
            |group: &serde_json::Value| group["snapshots"][index]["consistency"].clone();
        assert_eq!(guarantee(&shown), guarantee(&made), "{shown}");
    }
    let member = made["snapshots"][0]["id"].as_str().unwrap();
    let why = at.fails(3, &["snapshot", "delete", member, "--yes"]);
    assert!(why.contains("the plugin refused it ("), "{why}");
    let why = at.fails(2, &["group", "delete", "both"]);
    assert!(why.contains(member), "says what is destroyed: {why}");
    at.ok(&["group", "delete", "both", "--yes"]);
    assert_eq!(at.json(&["snapshot", "list"]), serde_json::json!([]));
    at.fails(3, &["group", "show", "both"]);
    at.ok(&["volume", "delete", "one", "two", "--yes"]);
}
