//! House rules that are tests.
//!
//! A rule that nobody checks is forgotten by the third change. What a lint can say is left to
//! clippy; what it cannot (who may know whom, which sources may name a clock, whether a link still
//! leads somewhere) is said here. Each checker is a plain function from text to violations, one
//! sentence each, and has tests of its own; `tests/house_rules.rs` applies them to this repository.
//! Nothing here compiles the workspace, so the rules are known to hold, or not, in a second.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a driver: it reads the repository's files and runs git and cargo"
)]

pub mod code;
pub mod comments;
pub mod dependencies;
pub mod documents;
pub mod files;
pub mod imports;
pub mod markdown;
pub mod product;
pub mod purity;
pub mod rooms;
pub mod tree;
