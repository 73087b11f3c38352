//! The service on real sockets, called by the generated client, and by nodes.

mod client;
mod service;
mod support;

use ring::digest::{SHA256, digest};

#[test]
fn generated_code_is_that_of_the_definition() {
    let definition = include_bytes!("../../../../../proto/sherwood/v1/tickets.proto");
    let digest = digest(&SHA256, definition);
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let stated = include_str!("../generated.rs").lines().nth(1).expect("a second line");
    assert_eq!(stated, format!("// {hex}"), "tickets.proto has changed: run `make proto`");
}
