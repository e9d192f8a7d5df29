#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| orlop_csi::fuzzing::http2::frames(input));
