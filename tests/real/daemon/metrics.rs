//! `/metrics` of a real daemon: what is there, that it is true, and that no pool can hold it up.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use orlop_sys::file;
use orlop_tests::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::daemon::hung::{Frozen, on_pool, until};

/// Far more than an answer takes; reached only by a daemon that hangs.
const TIMEOUT: Duration = Duration::from_secs(120);

/// One sample: its name, its labels in order, and its value.
type Samples = BTreeMap<(String, BTreeMap<String, String>), f64>;

pub(crate) struct Scrape {
    /// Each name as samples have it, `_total` and all; histograms without their parts.
    names: BTreeMap<String, String>,
    samples: Samples,
}

pub(crate) fn with_metrics(launch: Launch) -> (Launch, PathBuf) {
    let socket = launch.scratch().join("metrics.sock");
    let address = format!("unix://{}", socket.display());
    (launch.env("ORLOP_METRICS_LISTEN", address).env("ORLOP_METRICS_VOLUMES", "true"), socket)
}

async fn get(socket: &Path, path: &str) -> (u16, String, String) {
    let talking = async {
        let mut stream = UnixStream::connect(socket).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = tokio::time::timeout(TIMEOUT, talking).await.expect("no answer");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    (code, head.to_ascii_lowercase(), body.to_owned())
}

pub(crate) async fn scrape(socket: &Path) -> Scrape {
    let (code, head, body) = get(socket, "/metrics").await;
    assert_eq!(code, 200, "{body}");
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(body.ends_with("# EOF\n"));
    let mut names = BTreeMap::new();
    let mut samples = Samples::new();
    for line in body.lines() {
        if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let suffix = if kind == "counter" { "_total" } else { "" };
            names.insert(format!("{name}{suffix}"), kind.to_owned());
        } else if !line.starts_with('#') {
            let (key, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = key.split_once('{').unwrap_or((key, "}"));
            let labels = labels.trim_end_matches('}').split(',').filter(|pair| !pair.is_empty());
            let pair = |pair: &str| {
                let (name, value) = pair.split_once('=').unwrap();
                (name.to_owned(), value.trim_matches('"').to_owned())
            };
            let value = if value == "+Inf" { f64::INFINITY } else { value.parse().unwrap() };
            samples.insert((name.to_owned(), labels.map(pair).collect()), value);
        }
    }
    Scrape { names, samples }
}

impl Scrape {
    pub(crate) fn find(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let has = |all: &BTreeMap<String, String>| {
            labels.iter().all(|(name, value)| all.get(*name).is_some_and(|found| found == value))
        };
        let mut found = self.samples.iter().filter(|((other, all), _)| other == name && has(all));
        let (first, second) = (found.next(), found.next());
        assert!(second.is_none(), "{name} {labels:?} is not one: {first:?} {second:?}");
        first.map(|(_, value)| *value)
    }

    #[track_caller]
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.find(name, labels).unwrap_or_else(|| panic!("there is no {name} with {labels:?}"))
    }

    /// The labels of all samples of a name, without those that belong to its kind.
    fn labels(&self, name: &str) -> BTreeSet<String> {
        let parts = [name.to_owned(), format!("{name}_count")];
        let of_it = self.samples.keys().filter(|(other, _)| parts.contains(other));
        of_it.flat_map(|(_, labels)| labels.keys().cloned()).collect()
    }
}

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Names, types and labels by the table of docs/metrics.md.
fn documented() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let text = read("docs/metrics.md");
    let rows = text
        .lines()
        .filter(|line| line.starts_with("| `orlop_") || line.starts_with("| `process_"));
    let parsed = rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let labels = cells[3].split(',').map(|label| label.trim().trim_matches('`').to_owned());
        let labels = labels.filter(|label| !label.is_empty()).collect();
        (cells[1].trim_matches('`').to_owned(), (cells[2].to_owned(), labels))
    });
    parsed.collect()
}

/// What looks like a name of a metric of ours.
fn names_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| word.starts_with("orlop_") || word.starts_with("process_"))
        .map(str::to_owned)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_is_documented_and_those_that_rules_name_exist() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, GIB);
    let (launch, socket) = with_metrics(Launch::on(&pool));
    let daemon = launch.start().await;
    let client = daemon.client();
    let volume = client.create("pvc-\"odd\"").size(64 * MIB).fs("ext4").done().await;
    let node = client.on_node(&volume, mount("ext4"));
    node.up().await;
    client.snapshot("snapshot", &node.id).await.unwrap();
    std::fs::create_dir(pool.path.join("volumes/stray")).unwrap();
    let lost = client.create("lost").size(64 * MIB).block().done().await;
    std::fs::remove_file(pool.volume_data(&lost.volume_id)).unwrap();
    // The first one begins an examination.
    until("the pool is examined", || async {
        scrape(&socket).await.find("orlop_doctor_unexamined", &[]).is_some()
    })
    .await;
    let scraped = scrape(&socket).await;
    let documented = documented();
    let kinds: BTreeMap<_, _> =
        documented.iter().map(|(name, (kind, _))| (name.clone(), kind.clone())).collect();
    assert_eq!(scraped.names, kinds, "docs/metrics.md has another table");
    for (name, (_, labels)) in &documented {
        let seen = scraped.labels(name);
        let has_samples = scraped.samples.keys().any(|(other, _)| other.starts_with(name.as_str()));
        assert!(!has_samples || seen == *labels, "{name} has the labels {seen:?}");
        let optional = ["orlop_peer_", "orlop_trace_", "orlop_pool_metadata_"];
        let is_optional = optional.iter().any(|start| name.starts_with(start));
        assert!(has_samples || is_optional, "{name} has no sample");
    }
    let exists = |name: &str| {
        let parts = ["_bucket", "_count", "_sum"];
        let whole = parts.iter().find_map(|part| name.strip_suffix(part)).unwrap_or(name);
        scraped.names.contains_key(name)
            || scraped.names.get(whole).is_some_and(|kind| kind == "histogram")
    };
    for file in [
        "deploy/monitoring/alerts.yaml",
        "deploy/monitoring/dashboard.json",
        "docs/runbooks/alerts.md",
        "docs/metrics.md",
    ] {
        let named = names_in(&read(file));
        assert!(named.len() > 10, "{file} names metrics");
        // A family that is described as one.
        let known = |name: &String| exists(name) || name.ends_with('_');
        let unknown: Vec<_> = named.iter().filter(|name| !known(name)).collect();
        assert!(unknown.is_empty(), "{file} names metrics that do not exist: {unknown:?}");
    }
    node.down().await;
}

/// Each alert leads to a section that says what to do.
#[test]
fn every_alert_has_a_runbook() {
    let rules = read("deploy/monitoring/alerts.yaml");
    let runbooks = read("docs/runbooks/alerts.md");
    let alerts: Vec<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() >= 10);
    for alert in &alerts {
        let runbook = format!("runbook: docs/runbooks/alerts.md#{}", alert.to_ascii_lowercase());
        assert!(rules.contains(&runbook), "{alert} has no runbook");
        let (_, section) = runbooks
            .split_once(&format!("\n## {alert}\n"))
            .unwrap_or_else(|| panic!("no section for {alert}"));
        let section = section.split("\n## ").next().unwrap();
        for part in ["**Means.**", "**Look at.**", "**Do.**", "**Over when**"] {
            assert!(section.contains(part), "the runbook of {alert} has no {part}");
        }
    }
    for section in runbooks.lines().filter_map(|line| line.strip_prefix("## ")) {
        assert!(alerts.contains(&section), "the runbook has {section}, and there is no such alert");
    }
    for severity in
        rules.lines().filter_map(|line| line.trim().strip_prefix("labels: { severity: "))
    {
        assert!(["critical }", "warning }", "info }"].contains(&severity), "{severity}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_tell_what_happens() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, GIB);
    let (launch, socket) = with_metrics(Launch::on(&pool).env("ORLOP_POOL_FLOOR", "64MiB"));
    let daemon = launch.start().await;
    let client = daemon.client();
    let before = scrape(&socket).await;
    let ours = [("pool", "default")];
    assert_eq!(before.value("orlop_pool_up", &ours), 1.0);
    assert_eq!(before.value("orlop_pool_floor_bytes", &ours), 67_108_864.0);
    assert_eq!(before.value("orlop_pool_promised_bytes", &ours), 0.0);
    assert_eq!(before.value("orlop_pool_overcommit_ratio", &ours), 1.0);
    assert!(before.value("orlop_pool_until_full_seconds", &ours).is_infinite());
    let sum = ["used", "free"].map(|part| before.value(&format!("orlop_pool_{part}_bytes"), &ours));
    assert_eq!(sum[0] + sum[1], before.value("orlop_pool_size_bytes", &ours));

    let volume = client.create("pvc-1").size(64 * MIB).block().done().await;
    expect_code(client.snapshot("s", "v-00000000-none").await, Code::NotFound);
    let snapshot = client.snapshot("s", &volume.volume_id).await.unwrap();
    let node = client.on_node(&volume, block());
    node.up().await;
    Pattern::new(1).write(&node.target, 8 * MIB);
    let after = scrape(&socket).await;
    let count = |method: &str, code: &str| {
        let labels = [("method", method), ("code", code)];
        after.find("orlop_call_duration_seconds_count", &labels).unwrap_or(0.0)
    };
    assert_eq!(count("csi.v1.Controller/CreateVolume", "OK"), 1.0);
    assert_eq!(count("csi.v1.Controller/CreateSnapshot", "NOT_FOUND"), 1.0);
    assert_eq!(count("csi.v1.Controller/CreateSnapshot", "OK"), 1.0);
    assert_eq!(count("csi.v1.Node/NodeStageVolume", "OK"), 1.0);
    assert_eq!(after.value("orlop_calls_in_flight", &[]), 0.0);
    assert!(after.value("orlop_connections", &[]) >= 1.0);
    assert_eq!(after.value("orlop_pool_promised_bytes", &ours), 67_108_864.0);
    assert_eq!(after.value("orlop_volumes", &[("pool", "default"), ("condition", "normal")]), 1.0);
    let snapshots = |of: &Scrape, condition| {
        of.value("orlop_snapshots", &[("pool", "default"), ("condition", condition)])
    };
    assert_eq!((snapshots(&after, "normal"), snapshots(&after, "abnormal")), (1.0, 0.0));
    let written =
        after.value("orlop_volume_written_bytes_total", &[("name", "pvc-1"), ("volume", &node.id)]);
    assert!(written >= 8_388_608.0, "{written}");

    // Damage, and a pool that fills up.
    let data = pool.volume_data(&node.id);
    node.down().await;
    std::fs::rename(&data, data.with_extension("aside")).unwrap();
    let copy = pool.path.join("snapshots").join(&snapshot.snapshot_id).join("data");
    std::fs::File::options().write(true).open(&copy).unwrap().set_len(MIB).unwrap();
    let damaged = scrape(&socket).await;
    assert_eq!((snapshots(&damaged, "normal"), snapshots(&damaged, "abnormal")), (0.0, 1.0));
    let missing = [("pool", "default"), ("reason", "BackingFileMissing")];
    assert_eq!(damaged.value("orlop_volumes_with_problem", &missing), 1.0);
    assert_eq!(
        damaged.value("orlop_volumes", &[("pool", "default"), ("condition", "abnormal")]),
        1.0
    );
    std::fs::rename(data.with_extension("aside"), &data).unwrap();
    let hog = std::fs::File::create_new(pool.path.join("hog")).unwrap();
    file::preallocate(&hog, 0, file::space(&pool.path).unwrap().free - 32 * MIB).unwrap();
    let short = scrape(&socket).await;
    assert_eq!(short.value("orlop_pool_below_floor", &ours), 1.0);
    assert_eq!(short.value("orlop_pool_available_bytes", &ours), 0.0);
    let full = [("pool", "default"), ("reason", "PoolFull")];
    assert_eq!(short.value("orlop_volumes_with_problem", &full), 1.0);
    assert_eq!(short.find("orlop_volumes_with_problem", &missing), None);
    hog.set_len(0).unwrap();
    assert_eq!(scrape(&socket).await.value("orlop_pool_below_floor", &ours), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn findings_of_the_doctor_are_counted() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, GIB);
    let (launch, socket) = with_metrics(Launch::on(&pool));
    let mut daemon = launch.start().await;
    let client = daemon.client();
    let id = client.create("v").size(16 * MIB).block().done().await.volume_id;
    std::fs::remove_file(pool.volume_record(&id)).unwrap();
    assert_eq!(scrape(&socket).await.find("orlop_doctor_unexamined", &[]), None);
    until("the pool is examined", || async {
        scrape(&socket).await.find("orlop_doctor_unexamined", &[]) == Some(0.0)
    })
    .await;
    let scraped = scrape(&socket).await;
    let labels = [("pool", "default"), ("code", "data-without-record")];
    assert_eq!(scraped.value("orlop_doctor_findings", &labels), 1.0);
    let all: Vec<_> =
        scraped.samples.keys().filter(|(name, _)| name == "orlop_doctor_findings").collect();
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(scraped.value("orlop_doctor_examination_timestamp_seconds", &[]) > 1.6e9);
    assert!(pool.volume_data(&id).exists(), "an examination repairs nothing");
    daemon.terminate();
}

/// A pool that is not examined is configured all the same: its volumes are in use, and not forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn volumes_of_a_pool_that_is_not_examined_are_no_findings() {
    needs_root!();
    let well = TestPool::new(PoolFs::Xfs, 400 * MIB);
    let hung = well.beside("hung", PoolFs::Xfs, 400 * MIB);
    let pools = [("well", &well, ""), ("hung", &hung, "")];
    let (launch, socket) = with_metrics(Launch::on_several(&pools));
    let mut daemon = launch.start().await;
    let client = daemon.client();
    let node = client.on_node(&on_pool(&client, "in use", "hung").done().await, block());
    node.up().await;
    let frozen = Frozen::new(&hung);
    // The first scrape begins an examination, so it is known by other means that the pool hangs.
    let create = on_pool(&client, "more", "hung");
    let hanging = tokio::spawn(async move { create.send().await });
    until("it is known that the pool hangs", || async { daemon.log().contains("use pool hung") })
        .await;
    hanging.abort();
    until("the other pool is examined", || async {
        scrape(&socket).await.find("orlop_doctor_unexamined", &[]).is_some()
    })
    .await;
    let scraped = scrape(&socket).await;
    let hung_state = [("pool", "hung"), ("state", "hung")];
    assert_eq!(scraped.find("orlop_pool_state", &hung_state), Some(1.0));
    assert_eq!(scraped.labels("orlop_doctor_findings"), BTreeSet::new());
    drop(frozen);
    until("it is back", || async {
        scrape(&socket).await.find("orlop_pool_up", &[("pool", "hung")]) == Some(1.0)
    })
    .await;
    node.down().await;
    daemon.terminate();
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_bytes_are_what_copies_have_in_common() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Xfs, GIB);
    let (launch, socket) = with_metrics(Launch::on(&pool));
    let mut daemon = launch.start().await;
    let client = daemon.client();
    let volume = client.create("v").size(64 * MIB).block().done().await;
    Pattern::new(1).write_at(&pool.volume_data(&volume.volume_id), 0, 32 * MIB);
    let shared = async || scrape(&socket).await.value("orlop_pool_shared_bytes", &[]);
    assert_eq!(shared().await, 0.0);
    let one = client.snapshot("one", &volume.volume_id).await.unwrap().snapshot_id;
    assert_eq!(shared().await, 33_554_432.0);
    client.snapshot("two", &volume.volume_id).await.unwrap();
    assert_eq!(shared().await, 67_108_864.0);
    daemon.restart().await;
    assert_eq!(shared().await, 67_108_864.0);
    client.reconnect();
    client.delete_snapshot(&one).await.unwrap();
    assert_eq!(shared().await, 33_554_432.0);
    daemon.terminate();
}

/// The kernel counts by the number of a loop device, which another volume had before.
#[tokio::test(flavor = "multi_thread")]
async fn io_of_a_volume_begins_with_its_attachment() {
    needs_root!();
    const VOLUMES: usize = 50;
    let pool = TestPool::new(PoolFs::Xfs, GIB);
    let (launch, socket) = with_metrics(Launch::on(&pool));
    let mut daemon = launch.start().await;
    let client = daemon.client();
    let written = async |node: &OnNode| {
        let labels = [("volume", node.id.as_str())];
        scrape(&socket).await.value("orlop_volume_written_bytes_total", &labels)
    };
    let mut numbers = BTreeSet::new();
    for number in 0..VOLUMES {
        let create = client.create(&format!("v{number}")).size(16 * MIB).block();
        let node = client.on_node(&create.done().await, block());
        node.up().await;
        assert_eq!(written(&node).await, 0.0, "volume {number}");
        Pattern::new(1).write(&node.target, 4 * MIB);
        let after = written(&node).await;
        assert!((4_194_304.0..8_388_608.0).contains(&after), "{after}");
        // Neither a repeated call nor a restart begins it again.
        node.stage().await.unwrap();
        daemon.restart().await;
        client.reconnect();
        node.up().await;
        assert_eq!(written(&node).await, after);
        let is_used_again = !numbers.insert(device_at(&node));
        node.down().await;
        if is_used_again {
            daemon.terminate();
            return;
        }
    }
    panic!("no device was used for two volumes");
}

/// The other pool is measured, this one is named as hung, and scrapes do not pile up threads.
#[tokio::test(flavor = "multi_thread")]
async fn a_hung_pool_does_not_hang_the_scrape() {
    needs_root!();
    let well = TestPool::new(PoolFs::Xfs, 400 * MIB);
    let hung = well.beside("hung", PoolFs::Xfs, 400 * MIB);
    let pools = [("well", &well, ""), ("hung", &hung, "")];
    let (launch, socket) = with_metrics(Launch::on_several(&pools));
    let daemon = launch.start().await;
    on_pool(&daemon.client(), "kept", "hung").done().await;
    let state = |scraped: &Scrape, pool: &str, state: &str| {
        scraped.value("orlop_pool_state", &[("pool", pool), ("state", state)])
    };
    assert_eq!(state(&scrape(&socket).await, "hung", "up"), 1.0);
    let frozen = Frozen::new(&hung);
    let mut threads = Vec::new();
    // The first ones come before it is known that the pool hangs.
    until("the pool is known to hang", || async {
        let scraped = scrape(&socket).await;
        assert_eq!(state(&scraped, "well", "up"), 1.0);
        assert!(scraped.find("orlop_pool_size_bytes", &[("pool", "well")]).is_some());
        scraped.value("orlop_pool_up", &[("pool", "hung")]) == 0.0
    })
    .await;
    for _ in 0..20 {
        threads.push(scrape(&socket).await.value("process_threads", &[]));
    }
    let (first, last) = (threads[0], threads[threads.len() - 1]);
    assert!(last <= first + 4.0, "threads pile up: {threads:?}");
    drop(frozen);
    until("it is back", || async { state(&scrape(&socket).await, "hung", "up") == 1.0 }).await;
}

/// Names of volumes are shown only if that is allowed; health is at the same address.
#[tokio::test(flavor = "multi_thread")]
async fn names_of_volumes_are_not_shown_by_default() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let (launch, socket) = with_metrics(Launch::on(&pool));
    let address = format!("unix://{}", socket.display());
    // At one address: one listener for both.
    let launch = launch.without_env("ORLOP_METRICS_VOLUMES").env("ORLOP_HEALTH_LISTEN", address);
    let mut daemon = launch.start().await;
    let client = daemon.client();
    let volume = client.create("pvc-secret").size(64 * MIB).block().done().await;
    let node = client.on_node(&volume, block());
    node.up().await;
    let (_, _, text) = get(&socket, "/metrics").await;
    assert!(!text.contains("pvc-secret") && !text.contains(&node.id), "{text}");
    assert_eq!(get(&socket, "/healthz").await.0, 200);
    assert_eq!(get(&socket, "/readyz").await.0, 200);
    assert_eq!(get(&socket, "/").await.0, 404);
    node.down().await;
    daemon.terminate();
    assert!(!socket.exists());
}
