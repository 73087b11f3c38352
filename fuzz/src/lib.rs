//! Fuzz targets: properties that hold for any bytes from an untrusted peer.
//!
//! A parser of untrusted input must be correct for unexpected inputs too. Each target is a function
//! that panics when a property is violated. It has two callers: a test with a fixed number of
//! inputs from a fixed seed (`crates/wire/tests/fuzz` and `crates/listener/tests/fuzz`, part of
//! `make test`), and libFuzzer (`make fuzz`), which is guided by the branches an input takes and
//! runs for any length of time. Inputs found by one can be replayed by the other.
//!
//! [`codecs`] test parsers and writers, [`conversations`] whole listeners.

pub mod codecs;
pub mod conversations;
pub mod stream;
