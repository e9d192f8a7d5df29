//! Misconfiguration ends at once, with a message that names the setting, and leaves nothing.

use std::path::{Path, PathBuf};

use orlop_tests::*;

/// A start that must fail and name `setting`.
#[track_caller]
pub(crate) fn refused(launch: &Launch, setting: &str) {
    refused_by_both(launch, setting);
    assert_eq!(sockets_in(launch.scratch().path()), [""; 0], "{setting}");
}

/// `--check` says the same as a start, with the same code.
#[track_caller]
pub(crate) fn refused_by_both(launch: &Launch, setting: &str) {
    // Before it can change anything.
    let checked = refused_by_check(launch, setting);
    let before = launch.log().len();
    let ended = launch.run_to_end();
    let output = &ended.output[before..];
    assert_eq!(ended.status.code(), Some(2), "{setting}: {output}");
    let reason = output.lines().last().unwrap_or_default();
    assert!(reason.starts_with("orlop: "), "{setting}: {output}");
    assert!(
        checked.ends_with(&format!("{reason}\n")),
        "{setting}: {reason}, but checked: {checked}"
    );
}

/// As the start itself would be, and it leaves nothing.
#[track_caller]
pub(crate) fn refused_by_check(launch: &Launch, setting: &str) -> String {
    let before = tree(launch.scratch().path());
    let checked = launch.run(&["serve", "--check"]);
    assert_eq!(checked.status.code(), Some(2), "{setting}: {}", checked.stderr);
    assert!(checked.stderr.contains(setting), "{setting} is not named: {}", checked.stderr);
    assert_eq!(tree(launch.scratch().path()), before, "{setting}");
    checked.stderr
}

/// Every name below a directory.
fn tree(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        found.push(entry.path());
        if entry.file_type().unwrap().is_dir() {
            found.extend(tree(&entry.path()));
        }
    }
    found.sort();
    found
}

fn sockets_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".sock")).collect()
}

/// Changes to a start that would succeed, one at a time.
fn mistakes(launch: &Launch, values: &[(&str, &str)]) {
    for (setting, value) in values {
        refused(&launch.clone().env(setting, value), setting);
    }
}

#[test]
fn endpoint_must_be_a_unix_socket() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let launch = Launch::on(&pool);
    refused(&launch.clone().without_env("CSI_ENDPOINT"), "CSI_ENDPOINT");
    let no_suffix = format!("unix://{}", pool.scratch().join("csi").display());
    let too_long = format!("unix:///{}.sock", "x".repeat(120));
    let endpoints = ["", "tcp://127.0.0.1:10000", "unix://relative.sock", &no_suffix, &too_long];
    for endpoint in endpoints {
        refused(&launch.clone().env("CSI_ENDPOINT", endpoint), "CSI_ENDPOINT");
    }
    assert!(!pool.scratch().join("csi").exists());
}

#[test]
fn unknown_variables_are_refused() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let unknown = [("ORLOP_POOLS", "/x"), ("ORLOP_POOL_SIZE", "1GiB"), ("ORLOP_DEFAULTFS", "xfs")];
    mistakes(&Launch::on(&pool), &unknown);
}

#[test]
fn invalid_values_are_refused() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let wrong = [
        ("ORLOP_MODE", "both"),
        ("ORLOP_ATTACH", "maybe"),
        ("ORLOP_MAX_VOLUMES_PER_NODE", "-1"),
        ("ORLOP_DEFAULT_SIZE", "large"),
        ("ORLOP_DEFAULT_SIZE", "1KiB"),
        ("ORLOP_DEFAULT_FS", "zfs"),
        ("ORLOP_FILESYSTEMS", "xfs,zfs"),
        ("ORLOP_FREEZE_LIMIT_SECONDS", "0"),
        ("ORLOP_LOG", "orlop=loud"),
        ("ORLOP_LOG", "verbose"),
        ("ORLOP_LOG", "debug,orlop_csi"),
        ("ORLOP_LOG_FORMAT", "xml"),
        ("ORLOP_POOL_FLOOR", "100%"),
        ("ORLOP_POOL_FLOOR", "some"),
        ("ORLOP_POOL_OVERCOMMIT", "0.5"),
        ("ORLOP_POOL_OVERCOMMIT", "NaN"),
        ("ORLOP_POOL_IMAGE_SIZE", "tiny"),
        ("ORLOP_POOL_IMAGE_SIZE", "100MiB"),
        ("ORLOP_POOL_NAME", "not a name"),
        ("ORLOP_POOL", "relative/path"),
        ("ORLOP_DRIVER_NAME", "under_score"),
        ("ORLOP_NODE_ID", ""),
        ("ORLOP_NODE_ID", "node/1"),
        ("ORLOP_NODE_ID", "ends-in-"),
        ("ORLOP_TOPOLOGY", "zone"),
        ("ORLOP_TOPOLOGY", "example.com/zone=a"),
        ("ORLOP_TOPOLOGY", "zone=a b"),
        ("ORLOP_RUN_DIR", "relative/path"),
        ("ORLOP_WORKLOAD_CGROUP", "no-such-group-of-orlop-test"),
    ];
    mistakes(&Launch::on(&pool), &wrong);
    let contradiction = Launch::on(&pool).env("ORLOP_FILESYSTEMS", "xfs");
    mistakes(&contradiction, &[("ORLOP_DEFAULT_FS", "ext4")]);
}

#[test]
fn invalid_pools_are_refused() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let launch = Launch::on(&pool);
    refused(&launch.clone().without_env("ORLOP_POOL"), "ORLOP_POOL");

    let file = pool.scratch().join("file");
    std::fs::write(&file, "not a pool").unwrap();
    for path in [file.clone(), file.join("below")] {
        refused(&launch.clone().env("ORLOP_POOL", &path), path.to_str().unwrap());
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "not a pool");
}

#[test]
fn foreign_directory_is_not_made_a_pool() {
    needs_root!();
    for size in [None, Some("1GiB")] {
        let pool = TestPool::new(PoolFs::Directory, 0);
        let theirs = ["staging/website", "trash/2026", ".hidden"].map(|name| pool.path.join(name));
        for path in &theirs {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "theirs").unwrap();
        }
        let mut launch = Launch::on(&pool);
        if let Some(size) = size {
            launch = launch.env("ORLOP_POOL_IMAGE_SIZE", size);
        }
        for launch in [launch.clone().arg("--check"), launch] {
            let ended = launch.run_to_end();
            assert_eq!(ended.status.code(), Some(2), "{}", ended.output);
            let reason = ended.output.lines().last().unwrap_or_default();
            assert!(reason.contains("it holds other things"), "{reason}");
            assert!(reason.contains(pool.path.to_str().unwrap()), "{reason}");
        }
        for path in &theirs {
            assert_eq!(std::fs::read_to_string(path).unwrap(), "theirs");
        }
        assert_eq!(pool.path.read_dir().unwrap().count(), 3);
    }
}

#[test]
fn unusable_paths_are_refused() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let launch = Launch::on(&pool);
    let file = pool.scratch().join("file.sock");
    std::fs::write(&file, "not a socket").unwrap();
    let below = file.join("below");
    let endpoint = |path: &Path| format!("unix://{}", path.display());
    refused_by_both(&launch.clone().env("CSI_ENDPOINT", endpoint(&file)), "not a socket");
    let inside = launch.clone().env("CSI_ENDPOINT", endpoint(&below.join("csi.sock")));
    refused_by_both(&inside, "CSI_ENDPOINT");
    let addons = launch.clone().env("ORLOP_ADDONS_ENDPOINT", endpoint(&file));
    refused_by_both(&addons, "not a socket");
    refused_by_both(&launch.clone().env("ORLOP_RUN_DIR", &below), "ORLOP_RUN_DIR");
    refused_by_both(&launch.clone().env("ORLOP_POOL", &below), "ORLOP_POOL");
    std::fs::remove_file(&file).unwrap();

    // Volumes whose mark was lost.
    let volume = format!("volumes/v-01234567-{}", "0".repeat(32));
    std::fs::create_dir_all(pool.path.join(volume)).unwrap();
    refused(&launch, "orlop.pool");
}

/// Nothing can be made there by anyone but the kernel.
#[test]
fn paths_in_proc_and_sys_are_refused() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let nowhere = "/proc/orlop-test";
    let endpoint = format!("unix://{nowhere}/csi.sock");
    mistakes(
        &Launch::on(&pool),
        &[
            ("ORLOP_RUN_DIR", nowhere),
            ("ORLOP_POOL", nowhere),
            ("ORLOP_POOL", "/sys/kernel"),
            ("CSI_ENDPOINT", &endpoint),
            ("ORLOP_ADDONS_ENDPOINT", &endpoint),
        ],
    );
}

#[test]
fn overlapping_directories_are_refused() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let launch = Launch::on(&pool);
    let within = |name: &str| pool.path.join(name).to_str().unwrap().to_owned();
    mistakes(&launch, &[("ORLOP_RUN_DIR", "/"), ("ORLOP_RUN_DIR", &within(""))]);
    mistakes(&launch, &[("ORLOP_RUN_DIR", &within("run"))]);
    let socket = format!("unix://{}", within("x/csi.sock"));
    mistakes(&launch, &[("CSI_ENDPOINT", &socket), ("ORLOP_ADDONS_ENDPOINT", &socket)]);
    let run_dir = pool.scratch().join("run");
    let inside = run_dir.join("csi.orlop.io/pool");
    let launch = launch.env("ORLOP_RUN_DIR", &run_dir);
    let socket = format!("unix://{}", run_dir.join("csi.orlop.io/volumes/csi.sock").display());
    mistakes(&launch, &[("CSI_ENDPOINT", &socket), ("ORLOP_ADDONS_ENDPOINT", &socket)]);
    refused(&launch.clone().env("ORLOP_POOL", inside), "ORLOP_RUN_DIR");
    // Files where its directories are to be.
    for name in ["csi.orlop.io", "csi.orlop.io/volumes"] {
        let file = run_dir.join(name);
        let _ = std::fs::remove_file(file.parent().unwrap());
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "").unwrap();
        refused(&launch, "ORLOP_RUN_DIR");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_works_beside_a_running_daemon() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Daemon::start(&pool).await;
    let checked = daemon.launch().run(&["serve", "--check"]);
    assert_eq!(checked.status.code(), Some(0), "{}", checked.stderr);
    let managed = daemon.launch().clone().env("ORLOP_POOL_IMAGE_SIZE", "1GiB");
    refused_by_check(&managed, "plain directory");
    daemon.terminate();
}

/// With a filter of one part, or of what is no part at all, the rest is heard as before.
#[tokio::test(flavor = "multi_thread")]
async fn log_filter_mutes_nothing_else() {
    needs_root!();
    for filter in ["", "h2=warn", "no_such_part=trace"] {
        let pool = TestPool::new(PoolFs::Directory, 0);
        let mut daemon = Launch::on(&pool).env("ORLOP_LOG", filter).start().await;
        daemon.terminate();
        assert!(daemon.has_logged("INFO orlop::serve"), "{filter:?}: {}", daemon.log_end());
    }
}

#[test]
fn pool_of_a_later_version_is_refused() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let marker = pool.path.join("orlop.pool");
    let later = r#"{"format": 999, "shape": "not known today"}"#;
    std::fs::write(&marker, later).unwrap();
    refused(&Launch::on(&pool), "format 999");
    assert_eq!(std::fs::read_to_string(&marker).unwrap(), later);
}

#[test]
fn unknown_keys_in_the_file_are_refused() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let file = pool.scratch().join("orlop.toml");
    let launch = Launch::on(&pool).env("ORLOP_CONFIG", &file);
    refused(&launch, file.to_str().unwrap());
    for (text, named) in [
        ("colour = 'red'", "colour"),
        ("[log]\ncolour = 'red'", "colour"),
        ("[[pool]]\npath = '/x'\nsize = '1GiB'", "size"),
        ("mode = 7", "mode"),
        ("mode = ", "orlop.toml"),
    ] {
        std::fs::write(&file, text).unwrap();
        let ended = launch.run_to_end();
        assert_eq!(ended.status.code(), Some(2), "{text}: {}", ended.output);
        assert!(ended.output.contains(named), "{text}: {}", ended.output);
    }
    for text in ["[[pool]]\npath = '/x'", "[pool]\npath = '/x'"] {
        std::fs::write(&file, text).unwrap();
        refused(&launch, "ORLOP_POOL");
    }
}

/// A message must not blame a variable that is not set.
#[test]
fn file_error_names_the_file_and_key() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let file = pool.scratch().join("orlop.toml");
    let both = "[[pool]]\nname = 'a'\npath = '/x'\n[[pool]]\nname = 'b'\npath = '/y'\n";
    let launch = Launch::on(&pool).without_env("ORLOP_POOL").without_env("ORLOP_LOG");
    let launch = launch.env("ORLOP_CONFIG", &file);
    for (text, key) in [
        ("mode = 'both'".to_owned(), "mode"),
        ("[log]\nlevel = 'loud'".to_owned(), "log.level"),
        ("run_dir = '/'".to_owned(), "run_dir"),
        ("run_dir = '/proc/orlop-test'".to_owned(), "run_dir"),
        ("workload_cgroup = 'no-such-group-of-orlop-test'".to_owned(), "workload_cgroup"),
        ("".to_owned(), "pool.path"),
        (format!("{both}floor = '5'"), "pool.floor of pool \"b\""),
        (format!("{both}kind = 'rbd'"), "pool.path of pool \"b\""),
        ("[[pool]]\npath = '/proc/orlop-test'".to_owned(), "pool.path of pool \"default\""),
    ] {
        let with_pool = format!("{text}\n[[pool]]\npath = '{}'\n", pool.path.display());
        let has_pool = text.contains("pool") || text.is_empty();
        std::fs::write(&file, if has_pool { &text } else { &with_pool }).unwrap();
        let launch = match key {
            "run_dir" => launch.clone().without_env("ORLOP_RUN_DIR"),
            _ => launch.clone(),
        };
        refused(&launch, &format!("orlop: {}: {key}: ", file.display()));
    }
    // A variable wins over the file, also as the one to blame.
    std::fs::write(&file, "mode = 'all'\n[[pool]]\npath = '/x'\n").unwrap();
    refused(&launch.env("ORLOP_MODE", "both"), "orlop: ORLOP_MODE: ");
}

/// What is refused above is refused for its own sake: without it, the same start succeeds.
#[tokio::test(flavor = "multi_thread")]
async fn file_and_variables_merge_and_variables_win() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let file = pool.scratch().join("orlop.toml");
    let text = format!(
        "node_id = 'from-the-file'\nattach = false\nfilesystems = ['ext4', 'xfs']\n\
         topology = {{ rack = 'r7' }}\n[[pool]]\nname = 'first'\npath = '{}'\n",
        pool.path.display()
    );
    std::fs::write(&file, text).unwrap();
    let launch = Launch::on(&pool).without_env("ORLOP_POOL").env("ORLOP_CONFIG", &file);
    let daemon = launch.env("ORLOP_NODE_ID", "from-the-variable").start().await;
    let client = daemon.client();
    let info = client.node().node_get_info(v1::NodeGetInfoRequest {}).await.unwrap().into_inner();
    assert_eq!(info.node_id, "from-the-variable");
    let segments = info.accessible_topology.unwrap().segments;
    assert_eq!(segments["csi.orlop.io/rack"], "r7");
    assert_eq!(segments["csi.orlop.io/node"], "from-the-variable");
    let create = client.create("v").size(64 * MIB).fs("ext4").parameter("pool", "first");
    client.delete(&create.done().await.volume_id).await.unwrap();
}

/// What the help says is needed is enough, and nothing of it can be left out.
#[test]
fn help_names_the_settings_that_are_needed() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let launch = Launch::on(&pool);
    let help = launch.run(&["serve", "--help"]).stdout;
    let needed = ["CSI_ENDPOINT", "ORLOP_POOL"];
    for setting in needed.iter().chain(&["ORLOP_RBD_MONITORS", "ORLOP_PEERS"]) {
        assert!(help.contains(setting), "{setting}: {help}");
    }
    let others = ["ORLOP_RUN_DIR", "ORLOP_NODE_ID", "ORLOP_LOG"];
    let bare = others.into_iter().fold(launch, Launch::without_env);
    let checked = bare.run(&["serve", "--check"]);
    assert_eq!(checked.status.code(), Some(0), "{}", checked.stderr);
    for setting in needed {
        let checked = bare.clone().without_env(setting).run(&["serve", "--check"]);
        assert_eq!(checked.status.code(), Some(2), "{setting}");
        assert!(checked.stderr.contains(setting), "{}", checked.stderr);
    }
}

#[test]
fn check_has_no_side_effects() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let launch = Launch::on(&pool).arg("--check");
    let checked = launch.run_to_end();
    assert_eq!(checked.status.code(), Some(0), "{}", launch.log_end());
    let made = format!("would make pool default at {}", pool.path.display());
    assert!(checked.output.contains(&made), "{}", checked.output);
    assert_eq!(launch.clone().env("ORLOP_MODE", "both").run_to_end().status.code(), Some(2));
    assert!(!launch.socket().exists());
    assert_eq!(pool.path.read_dir().unwrap().count(), 0);
}

#[test]
fn check_prints_the_settings_as_they_hold() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let launch = Launch::on(&pool).env("ORLOP_POOL_FLOOR", "7%");
    let checked = launch.run(&["serve", "--check"]);
    assert_eq!(checked.status.code(), Some(0), "{}", checked.stderr);
    for expected in [
        "floor = \"7%\"  # ORLOP_POOL_FLOOR\n".to_owned(),
        "driver_name = \"csi.orlop.io\"\n".to_owned(),
        format!("path = \"{}\"  # ORLOP_POOL\n", pool.path.display()),
        format!("endpoint = \"unix://{}\"  # CSI_ENDPOINT\n", launch.socket().display()),
    ] {
        assert!(checked.stdout.contains(&expected), "{expected}: {}", checked.stdout);
    }
    // As a file it means the same.
    let file = pool.scratch().join("effective.toml");
    let (settings, _) = checked.stdout.split_once("\nwould make").unwrap();
    std::fs::write(&file, settings).unwrap();
    let bare = ["CSI_ENDPOINT", "ORLOP_POOL", "ORLOP_POOL_FLOOR", "ORLOP_RUN_DIR", "ORLOP_NODE_ID"];
    let launch = bare.into_iter().fold(launch, Launch::without_env).without_env("ORLOP_LOG");
    let again = launch.run(&["serve", "--check", "--config", file.to_str().unwrap()]);
    assert_eq!(again.status.code(), Some(0), "{}", again.stderr);
    let plain = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split("  # ").next().unwrap().to_owned()).collect()
    };
    assert_eq!(plain(&again.stdout), plain(&checked.stdout));
}

/// A start that listens at an address reports what a check could have reported.
#[test]
fn addresses_that_cannot_be_had_are_refused() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let launch = Launch::on(&pool);
    // Documentation addresses are no machine's.
    refused(&launch.clone().env("ORLOP_METRICS_LISTEN", "192.0.2.1:7422"), "ORLOP_METRICS_LISTEN");
    refused(&launch.clone().env("ORLOP_HEALTH_LISTEN", "192.0.2.1:7421"), "ORLOP_HEALTH_LISTEN");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    let in_use = launch.clone().env("ORLOP_HEALTH_LISTEN", format!("127.0.0.1:{port}"));
    let checked = in_use.run(&["serve", "--check"]);
    assert_eq!(checked.status.code(), Some(0), "{}", checked.stderr);
    assert!(checked.stdout.contains("is in use now"), "{}", checked.stdout);
    drop(free);
    let overlapping = in_use.clone().env("ORLOP_METRICS_LISTEN", format!("0.0.0.0:{port}"));
    refused_by_check(&overlapping, "ORLOP_METRICS_LISTEN");
    let overlapping = launch
        .env("ORLOP_METRICS_LISTEN", format!("0.0.0.0:{port}"))
        .env("ORLOP_PAGE_LISTEN", format!("127.0.0.1:{port}"));
    refused_by_check(&overlapping, "ORLOP_PAGE_LISTEN");
    let shared = in_use.env("ORLOP_PAGE_LISTEN", format!("127.0.0.1:{port}"));
    assert_eq!(shared.run(&["serve", "--check"]).status.code(), Some(0), "one listener for both");
}

#[test]
fn check_refuses_a_run_directory_that_cannot_be_read() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let launch = Launch::on(&pool);
    pool.scratch().ensure_dir("run/csi.orlop.io/pools/0123abcd");
    let checked = launch.run(&["serve", "--check"]);
    let ended = launch.run_to_end();
    assert_eq!(checked.status.code(), Some(1), "{checked:?}");
    assert_eq!(ended.status.code(), Some(1), "{}", ended.output);
    assert_eq!(ended.output.lines().last(), checked.stderr.lines().last());
}

#[test]
fn check_warns_of_an_image_larger_than_its_disk() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    for (size, is_large) in [("1GiB", false), ("900TiB", true)] {
        let launch = Launch::on(&pool).env("ORLOP_POOL_IMAGE_SIZE", size).arg("--check");
        let checked = launch.run_to_end();
        assert_eq!(checked.status.code(), Some(0), "{}", launch.log_end());
        let warns = checked.output.contains("warning: the image of pool default may grow to");
        assert_eq!(warns, is_large, "{size}: {}", checked.output);
    }
}

#[test]
fn check_warns_of_a_mode_that_half_serves_an_image_pool() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    for (mode, is_half) in [("all", false), ("node", true), ("controller", true)] {
        let launch = Launch::on(&pool).env("ORLOP_MODE", mode).arg("--check");
        let checked = launch.run_to_end();
        assert_eq!(checked.status.code(), Some(0), "{}", launch.log_end());
        let warns = checked.output.contains("choose ORLOP_MODE=all");
        assert_eq!(warns, is_half, "{mode}: {}", checked.output);
    }
}

#[test]
fn pool_list_says_that_no_pool_is_configured() {
    needs_root!();
    let listed = Launch::without_pool().run(&["pool", "list"]);
    assert_eq!(listed.status.code(), Some(2), "{}{}", listed.stdout, listed.stderr);
    assert!(listed.stderr.contains("ORLOP_POOL: is not set"), "{}", listed.stderr);
}
