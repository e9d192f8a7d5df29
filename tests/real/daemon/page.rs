//! The page of a real daemon: that what it is made of is true, that it refuses what is not meant for it, and that no pool
//! can hold it up.

use std::path::{Path, PathBuf};
use std::time::Duration;

use orlop_tests::*;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::daemon::hung::{Frozen, on_pool, until};
use crate::daemon::misconfigured::refused;

/// Far more than an answer takes; reached only by a daemon that hangs.
const TIMEOUT: Duration = Duration::from_secs(120);
const TOKEN: &str = "a-token-of-a-length-that-will-do";
const ODD: &str = "<script>alert(1)</script>";

struct Answer {
    code: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        assert!(self.head.contains("content-type: application/json"), "{}", self.head);
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

fn with_page(launch: Launch) -> (Launch, PathBuf) {
    let socket = launch.scratch().join("page.sock");
    let address = format!("unix://{}", socket.display());
    (launch.env("ORLOP_PAGE_LISTEN", address), socket)
}

fn with_token(launch: Launch) -> Launch {
    let file = launch.scratch().join("token");
    std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
    launch.env("ORLOP_PAGE_TOKEN_FILE", file)
}

/// With these lines of the header, each ended.
async fn send(socket: &Path, first: &str, headers: &str, body: &str) -> Answer {
    let talking = async {
        let mut stream = UnixStream::connect(socket).await.unwrap();
        let length = match body {
            "" => String::new(),
            body => format!("Content-Length: {}\r\n", body.len()),
        };
        let request = format!("{first} HTTP/1.1\r\n{headers}{length}\r\n{body}");
        // A refusal may come before all of it is read.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    };
    let answer = tokio::time::timeout(TIMEOUT, talking).await.expect("no answer");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { code, head: head.to_ascii_lowercase(), body: body.to_owned() }
}

async fn get(socket: &Path, path: &str) -> Answer {
    send(socket, &format!("GET {path}"), "Host: localhost\r\n", "").await
}

pub(crate) async fn got(socket: &Path, path: &str) -> Value {
    let answer = get(socket, path).await;
    assert_eq!(answer.code, 200, "{path}: {}", answer.body);
    answer.json()
}

async fn post(socket: &Path, path: &str, token: &str, body: &str) -> Answer {
    let headers = format!("Host: localhost\r\nAuthorization: Bearer {token}\r\n");
    send(socket, &format!("POST {path}"), &headers, body).await
}

/// Every answer has these, also a refusal.
fn assert_guarded(answer: &Answer) {
    for header in [
        "content-security-policy: default-src 'none'; script-src 'self';",
        "frame-ancestors 'none'",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
        "cross-origin-resource-policy: same-origin",
        "cache-control: no-store",
    ] {
        assert!(answer.head.contains(header), "{header} is missing: {}", answer.head);
    }
    assert!(!answer.head.contains("access-control-"), "{}", answer.head);
    let policy = answer.head.lines().find(|line| line.starts_with("content-security-policy"));
    assert!(!policy.unwrap().contains("unsafe"), "{policy:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_whole_and_loads_nothing_from_elsewhere() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let (launch, socket) = with_page(Launch::on(&pool));
    let mut daemon = launch.start().await;
    let page = get(&socket, "/").await;
    assert_eq!(page.code, 200);
    assert!(page.head.contains("content-type: text/html; charset=utf-8"), "{}", page.head);
    assert_guarded(&page);
    for (path, kind) in [
        ("/page.css", "text/css"),
        ("/page.js", "text/javascript"),
        ("/draw.js", "text/javascript"),
        ("/icon.svg", "image/svg+xml"),
    ] {
        let part = get(&socket, path).await;
        assert_eq!(part.code, 200, "{path}");
        assert!(part.head.contains(&format!("content-type: {kind}")), "{path}: {}", part.head);
        assert_guarded(&part);
        let foreign = part.body.replace("http://www.w3.org/", "");
        assert!(!foreign.contains("http://") && !foreign.contains("https://"), "{path}");
        for unsafe_way in
            ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
        {
            assert!(!part.body.contains(unsafe_way), "{path} has {unsafe_way}");
        }
    }
    assert!(!page.body.contains("style=") && !page.body.contains("onclick"), "inline code");
    // Health is at the same address; metrics are not, unless they are asked for there.
    assert_eq!(get(&socket, "/healthz").await.code, 200);
    assert_eq!(get(&socket, "/metrics").await.code, 404);
    daemon.terminate();
    assert!(!socket.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_tells_what_there_is() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, GIB);
    let (launch, socket) = with_page(Launch::on(&pool).env("ORLOP_POOL_FLOOR", "64MiB"));
    let daemon = launch.start().await;
    let client = daemon.client();
    let volume = client.create(ODD).size(64 * MIB).block().done().await;
    let id = volume.volume_id.clone();
    let node = client.on_node(&volume, block());
    node.up().await;
    Pattern::new(1).write(&node.target, 8 * MIB);
    let first = client.snapshot("first", &id).await.unwrap().snapshot_id;
    Pattern::new(2).write(&node.target, 8 * MIB);
    let second = client.snapshot("second", &id).await.unwrap().snapshot_id;
    let restored = client.create("restored").size(64 * MIB).block().from_snapshot(&second);
    let restored = restored.done().await.volume_id;
    node.down().await;

    let overview = got(&socket, "/api/overview").await;
    assert_eq!(overview["changes"], false);
    let shown = &overview["pools"][0];
    assert_eq!((&shown["name"], &shown["state"]), (&json!("default"), &json!("up")));
    assert_eq!(shown["space"]["floor"], 64 * MIB);
    assert_eq!(shown["objects"]["snapshots"], 2);
    // Four files of 8 MiB, as soon as they are looked at again.
    until("what is shared is counted for each file", || async {
        let overview = got(&socket, "/api/overview").await;
        let unshared = overview["pools"][0]["space"]["unshared"].as_u64().unwrap();
        (32 * MIB..33 * MIB).contains(&unshared)
    })
    .await;

    let list = got(&socket, "/api/volumes").await;
    assert_eq!((&list["total"], &list["matching"]), (&json!(2), &json!(2)));
    let entry = &list["volumes"][0];
    assert_eq!((&entry["name"], &entry["id"]), (&json!(ODD), &json!(id)));
    assert_eq!(entry["health"]["verdict"], "normal");
    assert_eq!(entry["snapshots"], 2);
    assert_eq!(entry["size_bytes"], 64 * MIB);

    // The first has its 8 MiB alone; what the second has is the volume's too.
    let details = got(&socket, &format!("/api/volumes/{id}")).await;
    let copy = |name: &str| {
        let copies = details["copies"].as_array().unwrap();
        copies.iter().find(|copy| copy["name"] == name).unwrap().clone()
    };
    assert_eq!(copy("first")["exclusive_bytes"], 8 * MIB);
    assert_eq!(copy("second")["exclusive_bytes"], 0);
    assert_eq!(copy("restored")["parent"], json!(second));
    assert_eq!(copy("restored")["id"], json!(restored));
    let free = || orlop_sys::file::space(&pool.path).unwrap().free;
    let before = free();
    client.delete_snapshot(&first).await.unwrap();
    until("what was promised is given back", || async { free() >= before + 8 * MIB - MIB }).await;

    let third = client.snapshot("third", &id).await.unwrap().snapshot_id;
    let same = got(&socket, &format!("/api/blocks?base={second}&target={third}")).await;
    assert_eq!((&same["bytes"], &same["is_complete"]), (&json!(0), &json!(true)));
    let all = got(&socket, &format!("/api/blocks?target={second}")).await;
    assert_eq!((&all["bytes"], &all["ranges"]), (&json!(8 * MIB), &json!(1)));
    let cells = all["cells"].as_array().unwrap();
    assert_eq!((cells[0].as_u64(), cells[127].as_u64()), (Some(100), Some(0)));
    let wrong = get(&socket, &format!("/api/blocks?base={third}&target={second}")).await;
    assert_eq!((wrong.code, wrong.json()["error"].as_str().unwrap().is_empty()), (400, false));

    let data = pool.volume_data(&id);
    std::fs::rename(&data, data.with_extension("aside")).unwrap();
    let abnormal = got(&socket, "/api/volumes?abnormal=1").await;
    assert_eq!(abnormal["matching"], 1);
    assert_eq!(abnormal["volumes"][0]["health"]["verdict"], "data-loss");
    assert_eq!(abnormal["volumes"][0]["health"]["problems"][0]["reason"], "BackingFileMissing");
    std::fs::rename(data.with_extension("aside"), &data).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_not_meant_for_the_page_are_refused() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let (launch, socket) = with_page(Launch::on(&pool));
    let _daemon = launch.start().await;
    // A name that an attacker points here.
    for host in
        ["Host: evil.example\r\n", "Host: localhost.evil.example\r\n", "", "Host: 10.0.0.1\r\n"]
    {
        for path in ["/", "/api/overview", "/api/volumes"] {
            let answer = send(&socket, &format!("GET {path}"), host, "").await;
            assert!([400, 421].contains(&answer.code), "{host}{path}: {}", answer.code);
            assert!(!answer.body.contains("default"), "{}", answer.body);
        }
    }
    // Another site that knows the address.
    let foreign = "Host: localhost\r\nSec-Fetch-Site: cross-site\r\n";
    assert_eq!(send(&socket, "GET /api/volumes", foreign, "").await.code, 403);
    assert_eq!(send(&socket, "POST /api/snapshots", foreign, "{}").await.code, 403);
    assert_eq!(send(&socket, "GET /", foreign, "").await.code, 200, "it may link to the page");
    // Methods and bodies.
    let here = "Host: localhost\r\n";
    for (first, allowed) in [
        ("POST /api/overview", "allow: get, head"),
        ("DELETE /api/volumes", "allow: get, head"),
        ("OPTIONS /api/volumes", "allow: get, head"),
        ("PUT /", "allow: get, head"),
        ("GET /api/snapshots", "allow: post"),
        ("DELETE /api/limits", "allow: post"),
    ] {
        let answer = send(&socket, first, here, "").await;
        assert_eq!(answer.code, 405, "{first}");
        assert!(answer.head.contains(allowed), "{first}: {}", answer.head);
        assert_guarded(&answer);
    }
    assert_eq!(send(&socket, "GET /api/volumes", here, "x").await.code, 413);
    for (path, code) in [
        ("/api/nothing", 404),
        ("/api/volumes/v-00000000-none", 404),
        ("/api/volumes/..%2f..%2fetc", 404),
        ("/api/blocks", 400),
        ("/page/assets/page.js", 404),
    ] {
        let answer = get(&socket, path).await;
        assert_eq!(answer.code, code, "{path}: {}", answer.body);
    }
    let head = send(&socket, "HEAD /", here, "").await;
    assert_eq!((head.code, head.body.as_str()), (200, ""));
    let long = format!("GET /api/volumes?search={}", "x".repeat(64 << 10));
    assert_eq!(send(&socket, &long, here, "").await.code, 431);
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_need_the_token() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, GIB);
    let group = Cgroup::new();
    let (launch, socket) = with_page(Launch::on(&pool).env("ORLOP_WORKLOAD_CGROUP", &group.name));
    let daemon = with_token(launch).start().await;
    let client = daemon.client();
    let id = client.create("v").size(64 * MIB).block().done().await.volume_id;
    let snapshot = json!({ "volume": id, "name": "by the page" }).to_string();
    assert_eq!(got(&socket, "/api/overview").await["changes"], true);

    let wrong = TOKEN.replace('a', "b");
    for token in ["", "x", &wrong, &TOKEN[1..]] {
        for path in ["/api/token", "/api/snapshots", "/api/limits"] {
            assert_eq!(post(&socket, path, token, &snapshot).await.code, 401, "{path}: {token}");
        }
    }
    assert_eq!(client.list_snapshots().await.unwrap().len(), 0);
    assert_eq!(post(&socket, "/api/token", TOKEN, "").await.code, 204);

    let taken = post(&socket, "/api/snapshots", TOKEN, &snapshot).await;
    assert_eq!(taken.code, 201, "{}", taken.body);
    let listed = client.list_snapshots().await.unwrap();
    assert_eq!(taken.json()["snapshot"], json!(listed[0].snapshot_id));
    // CSI answers with the first one, as if it had been taken now.
    let again = post(&socket, "/api/snapshots", TOKEN, &snapshot).await;
    assert_eq!(again.code, 409, "{}", again.body);
    assert!(again.body.contains("nothing was done"), "{}", again.body);
    assert_eq!(client.list_snapshots().await.unwrap(), listed);
    let limits = json!({ "volume": id, "limits": { "writeIops": 500, "readIops": 0 } });
    let set = post(&socket, "/api/limits", TOKEN, &limits.to_string()).await;
    assert_eq!(set.code, 204, "{}", set.body);
    let details = got(&socket, &format!("/api/volumes/{id}")).await;
    assert_eq!(details["volume"]["limits"]["writeIops"], 500);
    assert_eq!(details["volume"]["limits"]["readIops"], Value::Null);

    // What CSI refuses, and what is no request at all.
    let gone = json!({ "volume": "v-00000000-none", "name": "n" }).to_string();
    let unknown = json!({ "volume": id, "limits": { "speed": 1 } }).to_string();
    let more = json!({ "volume": id, "name": "n", "delete": true }).to_string();
    let long = "x".repeat(8 << 10);
    for (path, body, code) in [
        ("/api/snapshots", gone.as_str(), 404),
        ("/api/limits", &unknown, 400),
        ("/api/snapshots", &more, 400),
        ("/api/snapshots", "not json", 400),
        ("/api/snapshots", &long, 413),
    ] {
        let answer = post(&socket, path, TOKEN, body).await;
        assert_eq!(answer.code, code, "{path} {body:.40}: {}", answer.body);
    }
    assert!(!daemon.log().contains(TOKEN), "the log has the token");
    assert!(daemon.has_logged("taking a snapshot that was requested on the page"));
}

/// The thread that reads requests also answers the orchestrator.
#[tokio::test(flavor = "multi_thread")]
async fn token_on_a_disk_that_hangs_holds_up_no_call() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let directory = pool.scratch().ensure_dir("disk");
    let file = directory.join("token");
    std::fs::write(&file, TOKEN).unwrap();
    let (launch, socket) = with_page(Launch::on(&pool).env("ORLOP_PAGE_TOKEN_FILE", &file));
    let mut daemon = launch.start().await;
    let client = daemon.client();
    let silent = SilentMount::over(&directory);
    // Twice as many as are handled at once.
    let mut changes = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let socket = socket.clone();
        changes.spawn(async move { post(&socket, "/api/token", TOKEN, "").await.code });
    }
    for _ in 0..4 {
        assert_eq!(changes.join_next().await.unwrap().unwrap(), 503);
    }
    let volume = tokio::time::timeout(TIMEOUT, client.create("v").size(MIB).block().done());
    volume.await.expect("a call waits for the token");
    drop(silent);
    changes.abort_all();
    until("the token is read again", || async {
        post(&socket, "/api/token", TOKEN, "").await.code == 204
    })
    .await;
    daemon.terminate();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_token_file_the_page_only_shows() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let (launch, socket) = with_page(Launch::on(&pool));
    let daemon = launch.start().await;
    let id = daemon.client().create("v").size(MIB).block().done().await.volume_id;
    let body = json!({ "volume": id, "name": "n" }).to_string();
    for token in ["", TOKEN] {
        assert_eq!(post(&socket, "/api/snapshots", token, &body).await.code, 403);
    }
    assert_eq!(daemon.client().list_snapshots().await.unwrap().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_come_in_pages_and_can_be_searched() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let (launch, socket) = with_page(Launch::on(&pool));
    let daemon = launch.start().await;
    let client = daemon.client();
    for number in 0..130 {
        client.create(&format!("pvc-{number:03}")).size(MIB).block().done().await;
    }
    let names = |list: &Value| -> Vec<String> {
        let volumes = list["volumes"].as_array().unwrap();
        volumes.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
    };
    let usual = got(&socket, "/api/volumes").await;
    assert_eq!((names(&usual).len(), &usual["total"]), (25, &json!(130)));
    let most = got(&socket, "/api/volumes?count=100000").await;
    assert_eq!(names(&most).len(), 100);
    let rest = got(&socket, "/api/volumes?count=100&start=100").await;
    assert_eq!(names(&rest).first().map(String::as_str), Some("pvc-100"));
    assert_eq!(names(&rest).len(), 30);
    assert_eq!(names(&got(&socket, "/api/volumes?start=99999999999").await).len(), 0);
    let found = got(&socket, "/api/volumes?search=PVC-01&count=0").await;
    assert_eq!((&found["matching"], names(&found).len()), (&json!(10), 1));
    assert_eq!(got(&socket, "/api/volumes?search=%25&pool=default").await["matching"], 0);
    assert_eq!(got(&socket, "/api/volumes?pool=other").await["matching"], 0);
    assert_eq!(got(&socket, "/api/volumes?abnormal=1").await["matching"], 0);
}

/// The other pool is shown, this one is named as hung, and its volumes are known from memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_hung_pool_does_not_hang_the_page() {
    needs_root!();
    let well = TestPool::new(PoolFs::Xfs, 400 * MIB);
    let hung = well.beside("hung", PoolFs::Xfs, 400 * MIB);
    let pools = [("well", &well, ""), ("hung", &hung, "")];
    let (launch, socket) = with_page(Launch::on_several(&pools));
    let daemon = launch.start().await;
    let client = daemon.client();
    let kept = on_pool(&client, "kept", "hung").done().await.volume_id;
    on_pool(&client, "other", "well").done().await;
    client.snapshot("s", &kept).await.unwrap();
    let state = |overview: &Value, name: &str| {
        let pools = overview["pools"].as_array().unwrap();
        let found = pools.iter().find(|pool| pool["name"] == name).unwrap();
        found["state"].as_str().unwrap().to_owned()
    };
    let verdict = |list: &Value, name: &str| {
        let volumes = list["volumes"].as_array().unwrap();
        let found = volumes.iter().find(|volume| volume["name"] == name).unwrap();
        found["health"]["verdict"].as_str().unwrap().to_owned()
    };
    let frozen = Frozen::new(&hung);
    until("the pool is known to hang", || async {
        let overview = got(&socket, "/api/overview").await;
        assert_eq!(state(&overview, "well"), "up");
        state(&overview, "hung") == "hung"
    })
    .await;
    let list = got(&socket, "/api/volumes").await;
    assert_eq!(verdict(&list, "other"), "normal");
    assert_eq!(verdict(&list, "kept"), "inaccessible");
    let details = get(&socket, &format!("/api/volumes/{kept}")).await;
    assert_eq!(details.code, 503, "{}", details.body);
    assert!(details.json()["error"].as_str().unwrap().contains("hung"), "{}", details.body);
    drop(frozen);
    until("it is back", || async { state(&got(&socket, "/api/overview").await, "hung") == "up" })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_others_could_reach_is_refused() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    for address in ["0.0.0.0:7423", "[::]:7423", "10.1.2.3:7423"] {
        refused(&Launch::on(&pool).env("ORLOP_PAGE_LISTEN", address), "ORLOP_PAGE_LISTEN");
    }
    let token = |contents: &str| {
        let launch = with_page(Launch::on(&pool)).0;
        let file = launch.scratch().join("token");
        std::fs::write(&file, contents).unwrap();
        launch.env("ORLOP_PAGE_TOKEN_FILE", file)
    };
    refused(&token("short"), "ORLOP_PAGE_TOKEN_FILE");
    let missing = with_page(Launch::on(&pool)).0.env("ORLOP_PAGE_TOKEN_FILE", "/nonexistent");
    refused(&missing, "ORLOP_PAGE_TOKEN_FILE");

    let checked = with_page(Launch::on(&pool)).0.run(&["serve", "--check"]);
    assert!(checked.stdout.contains("would serve the page on "), "{}", checked.stdout);
    assert!(checked.stdout.contains("read-only"), "{}", checked.stdout);
    let checked = token(TOKEN).run(&["serve", "--check"]);
    assert!(checked.stdout.contains("with changes for holders of its token"));
    assert!(checked.stdout.contains("warning: every user of this machine can read the token"));
    assert!(!checked.stdout.contains(TOKEN));
}
