//! House rules as tests.
//!
//! Rules that are not checked are soon forgotten. Clippy checks what lints can express; this crate
//! checks the rest, such as the dependencies between crates, imports in circles, impure code in
//! pure crates, and dead links. Each check is a function from text to violations, one sentence
//! each, with tests of its own. `tests/house_rules.rs` applies the checks to this repository.
//! Nothing here compiles the workspace, so the checks take only seconds.

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
pub mod functions;
pub mod imports;
pub mod markdown;
pub mod product;
pub mod purity;
pub mod rooms;
pub mod tree;
