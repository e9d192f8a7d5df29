#![allow(clippy::unwrap_used)]

use super::*;

const ENDPOINT: Option<&str> = Some("unix:///run/x/csi.sock");

fn load_with(toml: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let mut settings: file::Settings =
        toml::from_str(toml).map_err(|e| ConfigError::new("file", e.to_string()))?;
    let variables = variables.iter().map(|(k, v)| (k.to_string(), v.to_string()));
    variables::apply(&mut settings, variables)?;
    settle::settle(settings, ENDPOINT)
}

fn message(result: Result<Config, ConfigError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn a_pool_is_all_that_is_needed() {
    let config = load_with("", &[("ORLOP_POOL", "/data"), ("ORLOP_NODE_ID", "n1")]).unwrap();
    assert_eq!(config.driver_name, "csi.orlop.io");
    assert_eq!(config.mode, Mode::All);
    assert!(config.attach);
    let segments: Vec<_> = config.place.segments().collect();
    assert_eq!(segments, [("csi.orlop.io/node", "n1")]);
    assert_eq!(config.pools[0].overcommit_percent, 100);
}

#[test]
fn variables_win_over_the_file() {
    let toml = "mode = \"node\"\nnode_id = \"file\"\n[[pool]]\npath = \"/data\"\n";
    let config = load_with(toml, &[("ORLOP_NODE_ID", "variable")]).unwrap();
    assert_eq!(config.node_id.as_str(), "variable");
    assert_eq!(config.mode, Mode::Node);
}

#[test]
fn nothing_unknown_is_passed_over() {
    assert!(message(load_with("nodeid = \"x\"", &[])).contains("nodeid"));
    assert!(message(load_with("[[pool]]\npaht = \"/x\"", &[])).contains("paht"));
    assert!(message(load_with("", &[("ORLOP_POOOL", "/x")])).contains("ORLOP_POOOL"));
    assert!(message(load_with("", &[("ORLOP_NODEID", "x")])).contains("ORLOP_NODEID"));
}

#[test]
fn variables_that_kubernetes_injects_are_not_ours() {
    let injected = [
        ("ORLOP_POOL", "/data"),
        ("ORLOP_SERVICE_HOST", "10.0.0.1"),
        ("ORLOP_PORT_80_TCP_ADDR", "10.0.0.1"),
        ("ORLOP_CONTROLLER_SERVICE_PORT", "80"),
    ];
    assert!(load_with("", &injected).is_ok());
}

#[test]
fn every_bad_value_names_its_setting() {
    for (name, value) in [
        ("ORLOP_ADDONS_ENDPOINT", "tcp://127.0.0.1:1"),
        ("ORLOP_MODE", "both"),
        ("ORLOP_DRIVER_NAME", "under_score.io"),
        ("ORLOP_ATTACH", "maybe"),
        ("ORLOP_MAX_VOLUMES_PER_NODE", "-1"),
        ("ORLOP_DEFAULT_FS", "zfs"),
        ("ORLOP_DEFAULT_SIZE", "tiny"),
        ("ORLOP_FILESYSTEMS", "xfs,ntfs"),
        ("ORLOP_TOPOLOGY", "zone"),
        ("ORLOP_TOPOLOGY", "example.com/zone=a"),
        ("ORLOP_FREEZE_LIMIT_SECONDS", "0"),
        ("ORLOP_LOG_FORMAT", "xml"),
        ("ORLOP_POOL_FLOOR", "100%"),
        ("ORLOP_POOL_OVERCOMMIT", "0.5"),
        ("ORLOP_POOL_IMAGE_SIZE", "big"),
        ("ORLOP_POOL_CREATE", "perhaps"),
        ("ORLOP_POOL_NAME", "a/b"),
        ("ORLOP_POOL", "relative"),
    ] {
        let variables = [("ORLOP_POOL", "/data"), (name, value)];
        let text = message(load_with("", &variables[usize::from(name == "ORLOP_POOL")..]));
        assert!(text.contains(name), "{name}={value}: {text}");
    }
    assert!(message(load_with("", &[])).contains("ORLOP_POOL"));
}

#[test]
fn the_default_filesystem_has_to_be_offered() {
    let variables =
        [("ORLOP_POOL", "/d"), ("ORLOP_FILESYSTEMS", "ext4"), ("ORLOP_DEFAULT_FS", "xfs")];
    assert!(message(load_with("", &variables)).contains("ORLOP_DEFAULT_FS"));
}

#[test]
fn making_a_pool_can_be_forbidden() {
    let pool = ("ORLOP_POOL", "/data");
    assert!(load_with("", &[pool]).unwrap().pools[0].create);
    let forbidden = [pool, ("ORLOP_POOL_CREATE", "false")];
    assert!(!load_with("", &forbidden).unwrap().pools[0].create);
    let toml = "[[pool]]\npath = \"/data\"\ncreate = false\n";
    assert!(!load_with(toml, &[]).unwrap().pools[0].create);
}

#[test]
fn a_pool_has_one_description_and_one_name() {
    let toml = "[[pool]]\npath = \"/a\"\n";
    assert!(message(load_with(toml, &[("ORLOP_POOL", "/b")])).contains("ORLOP_POOL"));
    let twice = "[[pool]]\npath = \"/a\"\n[[pool]]\npath = \"/b\"\n";
    assert!(message(load_with(twice, &[])).contains("default"));
}
