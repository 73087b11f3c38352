#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| sherwood_fuzz::conversations::memcached_binary_conversation(input));
