#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use orlop_csi::{Mode, Features, fuzzing};

#[path = "../plugin.rs"]
mod plugin;

static FEATURES: LazyLock<Features> = LazyLock::new(plugin::features);

fuzz_target!(|input: &[u8]| fuzzing::calls(plugin::engine(), &FEATURES, input));
