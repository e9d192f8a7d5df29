use orlop_model::Topology;
use orlop_pools::image::{Floor, ImagePoolConfig};

use super::*;

/// A file in the place of the pool's directory, which `--check` refuses.
fn not_a_directory() -> PoolConfig {
    PoolConfig::Image(ImagePoolConfig {
        path: "/proc/self/exe".into(),
        name: "default".to_owned(),
        topology: Topology::default(),
        floor: Floor::Percent(0),
        overcommit_percent: 100,
        managed_size: None,
        create: true,
        served_before: Vec::new(),
        thaw_helper: None,
    })
}

/// The supervisor starts the daemon again after a failure, and may not after a mistake.
#[test]
fn a_shortage_is_not_a_mistake_in_the_settings() {
    let of = |error| refused(&Origin::default(), &not_a_directory(), error).is_misconfiguration();
    assert!(of(Error::failed("open", "it is not a directory")));
    assert!(!of(Error::exhausted("no descriptor is left")));
}
