use super::super::origin::KEYS;
use super::super::{endpoint, file, validate, variables};
use super::*;

fn loaded(toml: &str, given: &[(&str, &str)]) -> (Config, Sockets) {
    let mut settings: file::Settings = toml::from_str(toml).unwrap();
    let given: Vec<_> = given.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let names = given.clone().into_iter().map(|(name, _)| name);
    variables::apply(&mut settings, given.into_iter()).unwrap();
    let sockets = endpoint::validate(&settings, None).unwrap();
    let config = validate::validate(settings).unwrap();
    (Config { origin: Origin::new(None, names), ..config }, sockets)
}

const ALL: &str = r#"
endpoint = "unix:///run/x/csi.sock"
addons_endpoint = "unix:///run/x/addons.sock"
register = "/registry"
kubelet_endpoint = "/host/csi.sock"
health_listen = "127.0.0.1:7421"
metrics_listen = "unix:///run/x/metrics.sock"
page_listen = "127.0.0.1:7423"
page_token_file = "/etc/page.token"
metrics_volumes = true
introspection = false
node_id = "n1"
topology = { zone = "z1", rack = "r7" }
attach = true
max_volumes_per_node = 7
default_size = "2GiB"
default_fs = "ext4"
filesystems = ["ext4", "xfs"]
workload_cgroup = "/work\"load\\s"
freeze_limit_seconds = 9
[log]
level = "debug,orlop_engine=trace"
format = "json"
[encryption]
key_file = "/etc/volumes.key"
kdf = "pbkdf2:2000"
[peers]
addresses = ["a:1", "b:2"]
listen = "127.0.0.1:7420"
certificate = "/etc/own.pem"
key = "/etc/own.key"
ca = "/etc/ca.pem"
[[pool]]
name = "a"
path = "/srv/a"
floor = "1234567k"
overcommit = 1.25
image_size = "4GiB"
create = false
encryption_key_file = "/etc/a.key"
[[pool]]
name = "disks"
kind = "lvm"
group = "vg0"
thin_pool = "thin"
floor = "10%"
overcommit = 2.0
create = true
size = "75%"
chunk_size = "256KiB"
metadata_size = "1GiB"
raid = "raid10"
mirrors = 1
stripes = 2
stripe_size = "64KiB"
extend_at = "80%"
extend_by = "10%"
extend_limit = "2TiB"
[[pool]]
name = "more"
kind = "lvm"
group = "vg0"
size = "500GiB"
[[pool]]
name = "b"
kind = "rbd"
monitors = "10.0.0.1,10.0.0.2"
namespace = "spaces"
"#;

/// Only a build that exports spans takes it.
fn with_all() -> String {
    match cfg!(feature = "otel") {
        true => format!("otlp_endpoint = \"http://127.0.0.1:4317\"\n{ALL}"),
        false => ALL.to_owned(),
    }
}

#[test]
fn effective_settings_are_a_file_that_means_the_same() {
    let least = "endpoint = \"unix:///x.sock\"\nnode_id = \"n\"\n[pool]\npath = \"/p\"";
    for toml in [with_all().as_str(), least] {
        let (config, sockets) = loaded(toml, &[]);
        let text = effective(&config, Some(&sockets));
        let (again, sockets_again) = loaded(&text, &[]);
        assert_eq!(effective(&again, Some(&sockets_again)), text);
        assert_eq!(format!("{again:?}"), format!("{config:?}"), "{text}");
        assert_eq!(format!("{sockets_again:?}"), format!("{sockets:?}"), "{text}");
    }
}

/// A setting that is not printed would be missing from a check and from a support bundle.
#[test]
fn every_setting_is_printed() {
    let signed_here = with_all().replace(
        "certificate = \"/etc/own.pem\"\nkey = \"/etc/own.key\"",
        "ca_key = \"/etc/ca.key\"",
    );
    let mut text = String::new();
    for toml in [with_all(), signed_here] {
        let (config, sockets) = loaded(&toml, &[]);
        text.push_str(&effective(&config, Some(&sockets)));
    }
    for (variable, key) in KEYS {
        let name = key.rsplit('.').next().unwrap();
        let is_printed = text.lines().any(|line| line.starts_with(&format!("{name} = ")));
        let is_for_others = variable == "ORLOP_OTLP_ENDPOINT" && !cfg!(feature = "otel");
        assert!(is_printed || is_for_others, "{key} is missing from:\n{text}");
    }
}

#[test]
fn what_a_variable_sets_is_named() {
    let toml = "endpoint = \"unix:///x.sock\"\nnode_id = \"file\"\n[log]\nformat = \"json\"";
    let (config, sockets) = loaded(toml, &[("ORLOP_POOL", "/p"), ("ORLOP_NODE_ID", "n")]);
    let text = effective(&config, Some(&sockets));
    assert!(text.contains("node_id = \"n\"  # ORLOP_NODE_ID\n"), "{text}");
    assert!(text.contains("path = \"/p\"  # ORLOP_POOL\n"), "{text}");
    assert!(text.contains("format = \"json\"\n"), "{text}");
    assert!(text.contains("driver_name = \"csi.orlop.io\"\n"), "{text}");
}
