//! Executes the book's page on the first hour.

use crate::page::{Execution, Reader, can_type, free_port};

const PAGE: &str = include_str!("../../../../docs/src/first-hour.md");

/// Ports used by the page, with free ports to replace them.
fn ports() -> Vec<(String, String)> {
    ["24306", "24379", "24080"].map(|port| (port.to_owned(), free_port().to_string())).into()
}

#[test]
fn first_hour_page_works_as_written() {
    let programs = [
        ("curl", "curl"),
        ("openssl", "openssl"),
        ("redis-server", "redis-server"),
        ("redis-cli", "redis-tools"),
        ("mariadb", "mariadb-server"),
    ];
    if !can_type(&programs) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    Reader::at(directory.path(), ports()).follow(PAGE, |_| Execution::Run);
}
