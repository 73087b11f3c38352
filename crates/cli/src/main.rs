//! The `sherwood` command.
fn main() {}
