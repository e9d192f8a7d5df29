#![allow(clippy::unwrap_used, clippy::panic)]

use orlop_pools::image::{Floor, ImagePoolConfig};

use super::*;

const ENDPOINT: Option<&str> = Some("unix:///run/x/csi.sock");

fn load_with(toml: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let mut settings: file::Settings =
        toml::from_str(toml).map_err(|e| ConfigError::new("file", e.to_string()))?;
    let variables = variables.iter().map(|(k, v)| (k.to_string(), v.to_string()));
    variables::apply(&mut settings, variables)?;
    endpoint::validate(&settings, ENDPOINT)?;
    pools::require_one(&settings.pools)?;
    validate::validate(settings)
}

fn image(config: &Config) -> &ImagePoolConfig {
    match config.pools.as_slice() {
        [PoolConfig::Image(pool)] => pool,
        other => panic!("{other:?}"),
    }
}

fn message(result: Result<Config, ConfigError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn pool_is_the_only_required_setting() {
    let config = load_with("", &[("ORLOP_POOL", "/data"), ("ORLOP_NODE_ID", "n1")]).unwrap();
    assert_eq!(config.driver_name, "csi.orlop.io");
    assert_eq!(config.mode, Mode::All);
    assert!(config.attach);
    let segments: Vec<_> = config.topology.segments().collect();
    assert_eq!(segments, [("csi.orlop.io/node", "n1")]);
    assert_eq!(image(&config).overcommit_percent, 100);
}

#[test]
fn variables_override_the_file() {
    let toml = "mode = \"node\"\nnode_id = \"file\"\n[[pool]]\npath = \"/data\"\n";
    let config = load_with(toml, &[("ORLOP_NODE_ID", "variable")]).unwrap();
    assert_eq!(config.node_id.as_str(), "variable");
    assert_eq!(config.mode, Mode::Node);
}

#[test]
fn unknown_settings_are_refused() {
    assert!(message(load_with("nodeid = \"x\"", &[])).contains("nodeid"));
    assert!(message(load_with("[[pool]]\npaht = \"/x\"", &[])).contains("paht"));
    assert!(message(load_with("", &[("ORLOP_POOOL", "/x")])).contains("ORLOP_POOOL"));
    let why = message(load_with("", &[("ORLOP_NODEID", "x")]));
    assert!(
        why.starts_with("ORLOP_NODEID: ") && why.contains("did you mean ORLOP_NODE_ID?"),
        "{why}"
    );
    let why = message(load_with("", &[("ORLOP_SOMETHING_ELSE", "x")]));
    assert!(!why.contains("did you mean"), "{why}");
}

#[test]
fn kubernetes_service_variables_are_ignored() {
    let injected = [
        ("ORLOP_POOL", "/data"),
        ("ORLOP_SERVICE_HOST", "10.0.0.1"),
        ("ORLOP_PORT_80_TCP_ADDR", "10.0.0.1"),
        ("ORLOP_CONTROLLER_SERVICE_PORT", "80"),
        // Of Services that are named orlop-pool and orlop-rbd.
        ("ORLOP_POOL_SERVICE_HOST", "10.0.0.1"),
        ("ORLOP_POOL_PORT", "tcp://10.0.0.1:80"),
        ("ORLOP_POOL_PORT_80_TCP_ADDR", "10.0.0.1"),
        ("ORLOP_RBD_SERVICE_HOST", "10.0.0.1"),
        ("ORLOP_LVM_SERVICE_PORT", "80"),
    ];
    assert!(load_with("", &injected).is_ok());
}

#[test]
fn every_bad_value_names_its_setting() {
    for (name, value) in [
        ("ORLOP_ADDONS_ENDPOINT", "tcp://127.0.0.1:1"),
        ("ORLOP_REGISTER", "registry"),
        ("ORLOP_KUBELET_ENDPOINT", "/host/csi.sock"),
        ("ORLOP_HEALTH_LISTEN", "7421"),
        ("ORLOP_MODE", "both"),
        ("ORLOP_DRIVER_NAME", "under_score.io"),
        ("ORLOP_ATTACH", "maybe"),
        ("ORLOP_MAX_VOLUMES_PER_NODE", "-1"),
        ("ORLOP_DEFAULT_FS", "zfs"),
        ("ORLOP_DEFAULT_SIZE", "tiny"),
        ("ORLOP_FILESYSTEMS", "xfs,ntfs"),
        ("ORLOP_TOPOLOGY", "zone"),
        ("ORLOP_TOPOLOGY", "example.com/zone=a"),
        ("ORLOP_TOPOLOGY", "zone=a,zone=b"),
        ("ORLOP_TOPOLOGY", "Node=n2"),
        ("ORLOP_FREEZE_LIMIT_SECONDS", "0"),
        ("ORLOP_LOG_FORMAT", "xml"),
        ("ORLOP_POOL_FLOOR", "100%"),
        ("ORLOP_POOL_FLOOR", "5"),
        ("ORLOP_POOL_OVERCOMMIT", "0.5"),
        ("ORLOP_POOL_IMAGE_SIZE", "big"),
        ("ORLOP_POOL_IMAGE_SIZE", "299MiB"),
        ("ORLOP_NODE_ID", "node/1"),
        ("ORLOP_RUN_DIR", "relative"),
        ("ORLOP_LOG", "verbose"),
        ("ORLOP_LOG", "warn,loud"),
        ("ORLOP_POOL_CREATE", "perhaps"),
        ("ORLOP_POOL_NAME", "a/b"),
        ("ORLOP_POOL_KIND", "zfs"),
        ("ORLOP_RBD_USER", "admin"),
        ("ORLOP_LVM_GROUP", "vg0"),
        ("ORLOP_POOL", "relative"),
    ] {
        let variables = [("ORLOP_POOL", "/data"), (name, value)];
        let text = message(load_with("", &variables[usize::from(name == "ORLOP_POOL")..]));
        assert!(text.contains(name), "{name}={value}: {text}");
    }
    assert!(message(load_with("", &[])).contains("ORLOP_POOL"));
}

#[test]
fn floor_needs_a_unit() {
    let floor = |text| load_with("", &[("ORLOP_POOL", "/data"), ("ORLOP_POOL_FLOOR", text)]);
    for (text, expected) in [
        ("0", Floor::Bytes(0)),
        ("5%", Floor::Percent(5)),
        ("5GiB", Floor::Bytes(5 << 30)),
        ("5 M", Floor::Bytes(5_000_000)),
    ] {
        assert_eq!(image(&floor(text).unwrap()).floor, expected, "{text}");
    }
    for text in ["5", "1073741824"] {
        let error = message(floor(text));
        assert!(error.contains(&format!("write {text}%")), "{error}");
    }
}

#[test]
fn the_default_filesystem_has_to_be_offered() {
    let variables =
        [("ORLOP_POOL", "/d"), ("ORLOP_FILESYSTEMS", "ext4"), ("ORLOP_DEFAULT_FS", "xfs")];
    assert!(message(load_with("", &variables)).contains("ORLOP_DEFAULT_FS"));
}

#[test]
fn pool_creation_can_be_forbidden() {
    let pool = ("ORLOP_POOL", "/data");
    assert!(image(&load_with("", &[pool]).unwrap()).create);
    let forbidden = [pool, ("ORLOP_POOL_CREATE", "false")];
    assert!(!image(&load_with("", &forbidden).unwrap()).create);
    let toml = "[[pool]]\npath = \"/data\"\ncreate = false\n";
    assert!(!image(&load_with(toml, &[]).unwrap()).create);
}

#[test]
fn pool_is_described_once_with_one_name() {
    let toml = "[[pool]]\npath = \"/a\"\n";
    assert!(message(load_with(toml, &[("ORLOP_POOL", "/b")])).contains("ORLOP_POOL"));
    assert!(message(load_with(toml, &[("ORLOP_POOL_FLOOR", "1%")])).contains("ORLOP_POOL_FLOOR"));
    let twice = "[[pool]]\npath = \"/a\"\n[[pool]]\npath = \"/b\"\n";
    assert!(message(load_with(twice, &[])).contains("default"));
}

const RBD: [(&str, &str); 2] =
    [("ORLOP_POOL_KIND", "rbd"), ("ORLOP_RBD_MONITORS", "[v2:10.0.0.1:3300],10.0.0.2")];

#[test]
fn rbd_pool_requires_only_monitors() {
    let toml = "[[pool]]\nkind = \"rbd\"\nmonitors = \"[v2:10.0.0.1:3300],10.0.0.2\"\n";
    for config in [load_with("", &RBD).unwrap(), load_with(toml, &[]).unwrap()] {
        let [PoolConfig::Rbd(pool)] = config.pools.as_slice() else { panic!("{config:?}") };
        assert_eq!(pool.monitors, "[v2:10.0.0.1:3300],10.0.0.2");
        assert_eq!((pool.pool.as_str(), pool.user.as_str()), ("rbd", "orlop"));
        assert_eq!(pool.namespace, "");
        assert_eq!(pool.keyring, Path::new("/etc/ceph/ceph.client.orlop.keyring"));
        assert_eq!(pool.timeout, Duration::from_secs(60));
        assert!(pool.serves_node && pool.collects_garbage);
    }
    assert!(message(load_with("", &RBD[..1])).contains("ORLOP_RBD_MONITORS"));
}

#[test]
fn setting_unfit_for_rbd_is_named() {
    for (name, value) in [
        ("ORLOP_RBD_MONITORS", "10.0.0.1\nkeyring=/x"),
        ("ORLOP_RBD_MONITORS", "10.0.0.1#"),
        ("ORLOP_RBD_POOL", "a/b"),
        ("ORLOP_RBD_NAMESPACE", "a,b"),
        ("ORLOP_RBD_USER", "client orlop"),
        ("ORLOP_RBD_KEYRING", "relative"),
        ("ORLOP_RBD_KEYRING", "/with space"),
        ("ORLOP_RBD_KEY", "secret"),
        ("ORLOP_RBD_TIMEOUT_SECONDS", "0"),
        ("ORLOP_RBD_TIMEOUT_SECONDS", "61"),
        ("ORLOP_POOL", "/data"),
        ("ORLOP_POOL_FLOOR", "5%"),
        ("ORLOP_ATTACH", "false"),
    ] {
        let mut variables: Vec<_> = RBD.into_iter().filter(|(known, _)| *known != name).collect();
        variables.push((name, value));
        let text = message(load_with("", &variables));
        assert!(text.contains(name), "{name}={value}: {text}");
    }
}

#[test]
fn controller_attaches_nothing_node_collects_no_garbage() {
    for (mode, serves_node, collects_garbage) in
        [("controller", false, true), ("node", true, false)]
    {
        let mut variables = RBD.to_vec();
        variables.push(("ORLOP_MODE", mode));
        let config = load_with("", &variables).unwrap();
        let [PoolConfig::Rbd(pool)] = config.pools.as_slice() else { panic!("{config:?}") };
        assert_eq!((pool.serves_node, pool.collects_garbage), (serves_node, collects_garbage));
    }
}

#[test]
fn capabilities_are_dropped_by_default() {
    let with =
        |value| load_with("", &[("ORLOP_POOL", "/data"), ("ORLOP_KEEP_CAPABILITIES", value)]);
    assert!(!load_with("", &[("ORLOP_POOL", "/data")]).unwrap().keep_capabilities);
    assert!(with("true").unwrap().keep_capabilities);
    assert!(message(with("some")).contains("ORLOP_KEEP_CAPABILITIES"));
}

#[test]
fn inspection_needs_neither_pool_nor_endpoint() {
    let validated = validate::validate(file::Settings::default()).unwrap();
    assert!(validated.pools.is_empty());
    assert!(require_pool(&validated).unwrap_err().to_string().contains("ORLOP_POOL"));
}

#[test]
fn single_pool_table_reports_its_errors() {
    let config = load_with("[pool]\npath = \"/data\"\nname = \"one\"\n", &[]).unwrap();
    assert_eq!(
        (image(&config).path.as_path(), config.pools[0].name()),
        (Path::new("/data"), "one")
    );
    assert!(message(load_with("[pool]\npaht = \"/x\"", &[])).contains("paht"));
    let both = "[pool]\npath = \"/a\"\n[[pool]]\npath = \"/b\"\n";
    assert!(load_with(both, &[]).is_err());
    assert!(message(load_with("pool = 7", &[])).contains("[[pool]]"));
}

#[test]
fn pools_need_different_directories() {
    let twice = "[[pool]]\nname = \"a\"\npath = \"/a\"\n[[pool]]\nname = \"b\"\npath = \"/a\"\n";
    assert!(message(load_with(twice, &[])).contains("pool.path"));
}

#[test]
fn log_filter_extends_the_default_level() {
    let filter = |given| {
        let variables = [("ORLOP_POOL", "/data"), ("ORLOP_LOG", given)];
        load_with("", &variables).unwrap().log.filter
    };
    assert_eq!(filter(""), "info");
    assert_eq!(filter("WARN"), "info,WARN");
    assert_eq!(filter("warn,orlop_csi=debug"), "info,warn,orlop_csi=debug");
}

#[test]
fn usual_file_is_read_where_nothing_else_is_given() {
    let directory = tempfile::tempdir().unwrap();
    let (usual, named) = (directory.path().join("orlop.toml"), Path::new("/given"));
    let of = |names: &[&str]| -> Vec<(String, String)> {
        names.iter().map(|name| (name.to_string(), "x".to_owned())).collect()
    };
    assert_eq!(file_to_read(None, &[], &usual), None, "it is not there");
    std::fs::write(&usual, "").unwrap();
    for names in [&[][..], &["ORLOP_SERVICE_HOST", "ORLOP_TEST_SEED", "ORLOP_CONFIG"]] {
        assert_eq!(file_to_read(None, &of(names), &usual), Some(usual.as_path()), "{names:?}");
        assert_eq!(file_to_read(Some(named), &of(names), &usual), Some(named));
    }
    assert_eq!(file_to_read(None, &of(&["ORLOP_RUN_DIR"]), &usual), None);
}
