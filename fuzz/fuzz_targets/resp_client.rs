#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| sherwood_fuzz::codecs::resp_client(input));
