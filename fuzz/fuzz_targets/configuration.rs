#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/orlop/src"]
mod orlop {
    #[allow(dead_code, reason = "only what reads settings is used")]
    pub(crate) mod config;
}

fuzz_target!(|input: &[u8]| orlop::config::fuzzing::configuration(input));
