//! The support bundle: all that it promises, nothing that is secret, and never a part without a word.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use orlop_sys::tool;
use orlop_tests::*;

use crate::daemon::secrets::{FLAG_VALUE, SECRET, stage_with_secrets, use_secrets_everywhere};
use crate::doctor::fixture::Fixture;

const CEPH_KEY: &str = "AQCanaryCanaryCanaryCanaryCanaryCanary==";

fn unpacked(bundle: &Path) -> PathBuf {
    let directory = bundle.with_extension("unpacked");
    fs::create_dir(&directory).unwrap();
    tool::run("tar", ["-xf", bundle.to_str().unwrap(), "-C", directory.to_str().unwrap()]).unwrap();
    directory.join("orlop-support")
}

fn read(directory: &Path, name: &str) -> String {
    let path = directory.join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[tokio::test(flavor = "multi_thread")]
async fn bundle_has_what_it_promises() {
    needs_root!();
    let fixture = Fixture::new(PoolFs::Xfs).await;
    let volume = fixture.client.create("v").size(64 * MIB).fs("ext4").done().await;
    let node = fixture.client.on_node(&volume, mount("ext4"));
    node.up().await;
    let file = fixture.pool.scratch().join("support.tar");
    let log = fixture.daemon.launch().log_path();
    let words = ["doctor", "--bundle", file.to_str().unwrap(), "--log", log.to_str().unwrap()];
    let ran = fixture.daemon.launch().run(&words);
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    assert!(ran.stdout.contains(&format!("support bundle: {}", file.display())), "{ran:?}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);

    let bundle = unpacked(&file);
    let pool = fixture.pool.path.to_str().unwrap();
    let device = device_at(&node);
    let record = format!("run-1/volumes/{}.json", node.id);
    for (name, expected) in [
        ("configuration.toml", format!("path = \"{pool}\"")),
        ("findings.txt", "): sound, 1 volume, 0 snapshots checked".to_owned()),
        ("findings.json", "\"sound\": true".to_owned()),
        ("versions.txt", "kernel: ".to_owned()),
        ("versions.txt", "mkfs.ext4: mke2fs ".to_owned()),
        ("log.txt", "NodePublishVolume".to_owned()),
        // What ext4 says when the volume is mounted.
        ("kernel-log.txt", format!("EXT4-fs ({}): mounted filesystem", loop_name(&node))),
        ("mounts.txt", node.target.to_str().unwrap().to_owned()),
        ("loop-devices.txt", format!(" {}:{} rw {pool}/volumes/{}", device.0, device.1, node.id)),
        ("pools/default/orlop.pool", "\"id\"".to_owned()),
        ("pools/default/served-by.json", "run_stamp".to_owned()),
        (record.as_str(), node.staging.to_str().unwrap().to_owned()),
        ("MANIFEST", "run-1 is ".to_owned()),
    ] {
        let text = read(&bundle, name);
        assert!(text.contains(&expected), "{name} without {expected}: {text}");
    }
    node.down().await;
}

fn loop_name(node: &OnNode) -> String {
    let (major, minor) = device_at(node);
    let device = fs::read_link(format!("/sys/dev/block/{major}:{minor}")).unwrap();
    device.file_name().unwrap().to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn bundle_has_no_secrets() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let authority = Authority::new();
    let files = authority.issue("test-node", pool.scratch().path());
    let launch = Launch::on(&pool).env("ORLOP_LOG", "trace");
    let launch = files.iter().fold(launch, |launch, (name, path)| launch.env(name, path));
    let daemon = launch.env("ORLOP_PEER_LISTEN", "127.0.0.1:0").start().await;
    let client = daemon.client();
    use_secrets_everywhere(&client).await;
    // Left staged, so that there are a record and a mount with its flags.
    let node = stage_with_secrets(&client, "kept").await;

    let keyring = pool.scratch().join("canary.keyring");
    fs::write(&keyring, format!("[client.orlop]\n\tkey = {CEPH_KEY}\n")).unwrap();
    let settings = pool.scratch().join("bundle.toml");
    let text = format!(
        "[[pool]]\npath = \"{}\"\n[[pool]]\nname = \"ceph\"\nkind = \"rbd\"\nmonitors = \"127.0.0.1:1\"\n\
         keyring = \"{}\"\ntimeout_seconds = 1\n",
        pool.path.display(),
        keyring.display()
    );
    fs::write(&settings, text).unwrap();
    let file = pool.scratch().join("support.tar");
    let log = daemon.launch().log_path();
    let launch = daemon.launch().clone().without_env("ORLOP_POOL");
    let mut words = vec!["doctor", "--json", "--config", settings.to_str().unwrap()];
    words.extend(["--bundle", file.to_str().unwrap(), "--log", log.to_str().unwrap()]);
    let ran = launch.run(&words);
    // Nothing answers where the monitors are said to be.
    assert_eq!(ran.status.code(), Some(2), "{ran:?}");

    let bundle = unpacked(&file);
    let key = fs::read_to_string(pool.scratch().join("tls.key")).unwrap();
    let key = key.lines().nth(1).unwrap();
    for secret in [SECRET, FLAG_VALUE, CEPH_KEY, key, "PRIVATE KEY", "canary-"] {
        assert_eq!(files_that_hold(&[&bundle], secret), [] as [PathBuf; 0], "{secret}");
    }
    // What would hold them is there.
    assert!(read(&bundle, "log.txt").contains("NodeStageVolume"));
    assert!(read(&bundle, &format!("run-1/volumes/{}.json", node.id)).contains("left out"));
    assert!(read(&bundle, "mounts.txt").contains(node.staging.to_str().unwrap()));
    assert!(read(&bundle, "configuration.toml").contains(keyring.to_str().unwrap()));
    assert!(read(&bundle, "MANIFEST").contains("- pools/ceph/orlop.pool: "));
    node.unstage().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn bundle_never_replaces_a_file() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Directory).await;
    fixture.daemon.terminate();
    let file = fixture.pool.scratch().join("support.tar");
    let link = fixture.pool.scratch().join("link.tar");
    fs::write(&file, "precious").unwrap();
    std::os::unix::fs::symlink(fixture.pool.scratch().join("nowhere"), &link).unwrap();
    let absent = fixture.pool.scratch().join("absent/support.tar");
    for target in [&file, &link, &absent] {
        let ran = fixture.daemon.launch().run(&["doctor", "--bundle", target.to_str().unwrap()]);
        assert_eq!(ran.status.code(), Some(2), "{ran:?}");
        assert!(ran.stderr.contains("cannot write the support bundle"), "{ran:?}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    assert!(!fixture.pool.scratch().join("nowhere").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_named_in_the_manifest() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Directory).await;
    fixture.daemon.terminate();
    fs::remove_file(fixture.pool.path.join("served-by.json")).unwrap();
    let run_dir = fixture.pool.scratch().join("run/csi.orlop.io");
    fs::write(run_dir.join("limited/9999:1"), vec![b'x'; 2 << 20]).unwrap();
    let file = fixture.pool.scratch().join("support.tar");
    let log = fixture.pool.scratch().join("no-such.log");
    let words = ["doctor", "--bundle", file.to_str().unwrap(), "--log", log.to_str().unwrap()];
    let ran = fixture.daemon.launch().run(&words);
    let manifest = read(&unpacked(&file), "MANIFEST");
    for missing in ["log.txt", "pools/default/served-by.json", "run-1/limited/9999:1"] {
        assert!(manifest.contains(&format!("- {missing}: ")), "{missing}: {manifest}");
        assert!(ran.stdout.contains(missing), "{missing}: {ran:?}");
    }
    fs::remove_file(run_dir.join("limited/9999:1")).unwrap();
}

/// A bundle is needed most when a disk hangs.
#[tokio::test(flavor = "multi_thread")]
async fn bundle_waits_for_no_pool_that_hangs() {
    needs_root!();
    let well = TestPool::new(PoolFs::Directory, 0);
    let hung = well.beside("hung", PoolFs::Directory, 0);
    let mut daemon = Launch::on_several(&[("hung", &hung, ""), ("well", &well, "")]).start().await;
    let well_only = daemon.client().create("v").size(MIB).block().parameter("pool", "well");
    let node = daemon.client().on_node(&well_only.done().await, block());
    node.stage().await.unwrap();
    let file = well.scratch().join("support.tar");
    let words = ["doctor", "--bundle", file.to_str().unwrap(), "--log", "/dev/null"];
    let launch = daemon.launch().clone().env("ORLOP_CONFIG", well.scratch().join("orlop.toml"));
    let output = well.scratch().join("output");
    fs::write(&output, "").unwrap();
    // Dropped after the disk is let go: a thread that waits in the kernel for what the daemon waits for, too, keeps
    // the process of the doctor, which has done all else.
    let running;
    let silent = SilentMount::over(&hung.path);
    running = launch.begin(&words, &output);
    let said = || fs::read_to_string(&output).unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    while !said().contains(file.to_str().unwrap()) {
        assert!(Instant::now() < deadline, "{}", said());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    drop(silent);
    drop(running);

    let bundle = unpacked(&file);
    let manifest = read(&bundle, "MANIFEST");
    assert!(manifest.contains("- pools/hung/orlop.pool: it was not read within"), "{manifest}");
    assert!(read(&bundle, "findings.txt").contains("did not answer within"));
    assert!(read(&bundle, "pools/well/orlop.pool").contains("\"id\""));
    assert!(read(&bundle, "loop-devices.txt").contains(well.path.to_str().unwrap()));
    assert!(read(&bundle, "mounts.txt").contains(hung.path.to_str().unwrap()));
    node.unstage().await.unwrap();
    daemon.terminate();
}

/// A disk from elsewhere brings along what it wants, also the run directory that it names.
#[tokio::test(flavor = "multi_thread")]
async fn bundle_follows_no_links_of_a_pool() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Directory).await;
    fixture.daemon.terminate();
    let scratch = fixture.pool.scratch();
    let private = scratch.ensure_dir("private");
    for name in ["key", "key.json"] {
        fs::write(private.join(name), format!("{{\"key\": \"{CEPH_KEY}\"}}")).unwrap();
    }
    let run_dir = scratch.join("run/csi.orlop.io");
    fs::remove_dir(run_dir.join("frozen")).unwrap();
    let links = [
        (private.join("key"), fixture.pool.path.join("served-by.json")),
        (private.join("key"), run_dir.join("lost-writes/link")),
        (private.join("key.json"), run_dir.join("volumes/link.json")),
        (private.clone(), run_dir.join("frozen")),
    ];
    fs::remove_file(&links[0].1).unwrap();
    for (target, link) in &links {
        std::os::unix::fs::symlink(target, link).unwrap();
    }
    let file = scratch.join("support.tar");
    fixture.daemon.launch().run(&[
        "doctor",
        "--bundle",
        file.to_str().unwrap(),
        "--log",
        "/dev/null",
    ]);
    let bundle = unpacked(&file);
    assert_eq!(files_that_hold(&[&bundle], CEPH_KEY), [] as [PathBuf; 0]);
    let manifest = read(&bundle, "MANIFEST");
    for missing in ["pools/default/served-by.json", "run-1/lost-writes/link", "run-1/frozen"] {
        assert!(manifest.contains(&format!("- {missing}: ")), "{missing}: {manifest}");
    }
    for (_, link) in &links {
        fs::remove_file(link).unwrap();
    }
}
