use std::collections::BTreeMap;

use orlop_model::RaidLevel;

use super::super::{file, validate};
use super::*;

fn loaded(toml: &str) -> Result<Config, ConfigError> {
    let settings: file::Settings = toml::from_str(toml).unwrap();
    validate::validate(settings)
}

fn of(more: &str) -> Result<LvmPoolConfig, ConfigError> {
    let toml = format!("node_id = \"n\"\n[pool]\nkind = \"lvm\"\ngroup = \"vg0\"\n{more}");
    let config = loaded(&toml)?;
    Ok(config.pools.iter().find_map(PoolConfig::as_lvm).unwrap().clone())
}

fn message<T: std::fmt::Debug>(result: Result<T, ConfigError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn volume_group_is_all_that_is_required() {
    let pool = of("").unwrap();
    assert_eq!((pool.group.as_str(), pool.thin_pool.as_str()), ("vg0", "orlop"));
    assert_eq!((pool.name.as_str(), pool.create), ("default", true));
    assert_eq!((pool.floor, pool.overcommit_percent), (Floor::Percent(5), 100));
    assert_eq!(pool.new_thin_pool.size, ThinPoolSize::Percent(90));
    assert_eq!(pool.extension, None);
    assert!(pool.new_thin_pool.layout.is_default());
    let without = message(loaded("node_id = \"n\"\n[pool]\nkind = \"lvm\""));
    assert!(without.contains("ORLOP_LVM_GROUP") && without.contains("vgs"), "{without}");
}

#[test]
fn sizes_differ_from_shares() {
    let size = |text: &str| of(&format!("size = {text:?}")).map(|pool| pool.new_thin_pool.size);
    assert_eq!(size("1%").unwrap(), ThinPoolSize::Percent(1));
    assert_eq!(size("100 %").unwrap(), ThinPoolSize::Percent(100));
    assert_eq!(size("2TiB").unwrap(), ThinPoolSize::Bytes(2 << 40));
    for wrong in ["0%", "101%", "90", "1.5GiB", "-1GiB", "0GiB", ""] {
        assert!(message(size(wrong)).contains("ORLOP_LVM_SIZE"), "{wrong}");
    }
}

#[test]
fn what_lvm_would_refuse_is_refused_before() {
    for (setting, wrong) in [
        ("ORLOP_LVM_GROUP", "group = \"a b\""),
        ("ORLOP_LVM_THIN_POOL", "thin_pool = \"-x\""),
        ("ORLOP_LVM_THIN_POOL", "thin_pool = \"a/b\""),
        ("ORLOP_LVM_THIN_POOL", "thin_pool = \"x_tmeta\""),
        ("ORLOP_LVM_THIN_POOL", "thin_pool = \"snapshot1\""),
        ("ORLOP_LVM_THIN_POOL", "thin_pool = \"..\""),
        ("ORLOP_LVM_CHUNK_SIZE", "chunk_size = \"32KiB\""),
        ("ORLOP_LVM_CHUNK_SIZE", "chunk_size = \"100KiB\""),
        ("ORLOP_LVM_CHUNK_SIZE", "chunk_size = \"2GiB\""),
        ("ORLOP_LVM_METADATA_SIZE", "metadata_size = \"1MiB\""),
        ("ORLOP_LVM_METADATA_SIZE", "metadata_size = \"17GiB\""),
        ("ORLOP_LVM_EXTEND_AT", "extend_at = \"80\""),
        ("ORLOP_LVM_EXTEND_AT", "extend_at = \"99%\""),
        ("ORLOP_LVM_EXTEND_BY", "extend_by = \"20%\""),
        ("ORLOP_LVM_EXTEND_LIMIT", "extend_limit = \"2TiB\""),
        ("ORLOP_LVM_EXTEND_BY", "extend_at = \"80%\"\nextend_by = \"0%\""),
        ("ORLOP_LVM_EXTEND_LIMIT", "extend_at = \"80%\"\nextend_limit = \"all\""),
    ] {
        let group = if wrong.starts_with("group") { "" } else { "group = \"vg0\"\n" };
        let toml = format!("node_id = \"n\"\n[pool]\nkind = \"lvm\"\n{group}{wrong}");
        let said = message(loaded(&toml));
        assert!(said.contains(setting), "{wrong}: {said}");
    }
}

#[test]
fn extension_has_a_threshold() {
    let of = |more: &str| of(more).unwrap().extension.unwrap();
    let extension = of("extend_at = \"75%\"");
    assert_eq!((extension.at_percent, extension.limit), (75, None));
    assert_eq!(extension.by, ThinPoolSize::Percent(20));
    let extension = of("extend_at = \"75%\"\nextend_by = \"5GiB\"\nextend_limit = \"1TiB\"");
    assert_eq!((extension.by, extension.limit), (ThinPoolSize::Bytes(5 << 30), Some(1 << 40)));
}

#[test]
fn thin_pool_that_is_made_may_lie_on_several_disks() {
    let pool = of("raid = \"raid10\"\nmirrors = 2\nstripes = 3\nstripe_size = \"128KiB\"").unwrap();
    let layout = pool.new_thin_pool.layout;
    assert_eq!((layout.raid, layout.mirrors), (Some(RaidLevel::Raid10), Some(2)));
    assert_eq!((layout.stripes, layout.stripe_size), (Some(3), Some(128 << 10)));
    for wrong in ["raid = \"raid7\"", "raid = \"raid5\"\nmirrors = 1"] {
        assert!(message(of(wrong)).contains("ORLOP_LVM_RAID"), "{wrong}");
    }
    assert!(message(of("mirrors = 2")).contains("ORLOP_LVM_MIRRORS"));
}

#[test]
fn settings_of_other_kinds_are_refused_both_ways() {
    let own = BTreeMap::from([
        ("group", "\"vg0\""),
        ("thin_pool", "\"x\""),
        ("size", "\"50%\""),
        ("chunk_size", "\"64KiB\""),
        ("metadata_size", "\"1GiB\""),
        ("raid", "\"raid1\""),
        ("mirrors", "1"),
        ("stripes", "2"),
        ("stripe_size", "\"64KiB\""),
        ("extend_at", "\"80%\""),
        ("extend_by", "\"20%\""),
        ("extend_limit", "\"1TiB\""),
    ]);
    let others = [
        ("kind = \"image\"\npath = \"/p\"", "is for pools of kind lvm"),
        ("kind = \"rbd\"\nmonitors = \"10.0.0.1\"", "is for pools of kind lvm"),
    ];
    for (kind, why) in others {
        for (key, value) in &own {
            let said =
                message(loaded(&format!("node_id = \"n\"\n[pool]\n{kind}\n{key} = {value}")));
            assert!(said.contains(why), "{kind} {key}: {said}");
        }
    }
    assert!(message(of("path = \"/p\"")).contains("is for pools of kind image"));
    assert!(message(of("image_size = \"1GiB\"")).contains("is for pools of kind image"));
    assert!(message(of("monitors = \"10.0.0.1\"")).contains("is for pools of kind rbd"));
}

#[test]
fn thin_pool_belongs_to_one_pool() {
    let two = |thin_pool: &str| {
        loaded(&format!(
            "node_id = \"n\"\n[[pool]]\nname = \"a\"\nkind = \"lvm\"\ngroup = \"vg\"\n[[pool]]\nname = \"b\"\n\
             kind = \"lvm\"\ngroup = \"vg\"\nthin_pool = {thin_pool:?}"
        ))
    };
    let said = message(two("orlop"));
    assert!(said.contains("pool \"a\" has the thin pool vg/orlop too"), "{said}");
    assert_eq!(two("second").unwrap().pools.len(), 2);
}

#[test]
fn pool_is_found_at_its_place() {
    let config = loaded(
        "node_id = \"n\"\n[[pool]]\nname = \"a\"\nkind = \"lvm\"\ngroup = \"vg\"\novercommit = 3.0",
    )
    .unwrap();
    for place in ["vg", "vg/orlop"] {
        let found = thin_pool_at(place, &config).unwrap();
        assert_eq!((found.name.as_str(), found.overcommit_percent), ("a", 300), "{place}");
    }
    let other = thin_pool_at("vg/second", &config).unwrap();
    assert_eq!((other.name.as_str(), other.thin_pool.as_str()), ("default", "second"));
    assert!(!other.create, "it is only looked at");
    for wrong in ["", "/orlop", "vg/", "vg/a/b", "-vg"] {
        assert!(thin_pool_at(wrong, &config).is_err(), "{wrong:?}");
    }
}
