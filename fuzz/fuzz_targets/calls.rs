#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use orlop_csi::{Mode, Offers, fuzzing};

#[path = "../plugin.rs"]
mod plugin;

static OFFERS: LazyLock<Offers> = LazyLock::new(plugin::offers);

fuzz_target!(|input: &[u8]| fuzzing::calls(plugin::engine(), &OFFERS, input));
