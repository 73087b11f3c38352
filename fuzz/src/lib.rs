//! Fuzz targets: what holds for any bytes a stranger sends.
//!
//! A parser that is fed by strangers must not be right only for the inputs somebody thought of.
//! Each target is a function that panics when a promise is broken, and does not know who calls it.
//! Two do: a test with a fixed number of inputs from a fixed seed (`crates/wire/tests/fuzz` and
//! `crates/listener/tests/fuzz`, part of `make test`), and libFuzzer, which looks at the branches
//! an input takes, for as long as one likes (`make fuzz`). So what one of them finds the other one
//! replays.
//!
//! [`codecs`] are about bytes and what they mean, [`conversations`] about whole listeners: bytes
//! and what they are answered.

pub mod codecs;
pub mod conversations;
pub mod stream;
