#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| orlop_pools::fuzzing::thin_metadata(input));
