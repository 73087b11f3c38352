#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| sherwood_fuzz::codecs::memcached_binary(input));
