//! Executes the book's page on the first hour.

use std::net::TcpListener;

use crate::page::{Execution, Reader, can_type};

const PAGE: &str = include_str!("../../../../docs/src/first-hour.md");

/// Ports used by the page, with free ports to replace them.
fn ports() -> Vec<(String, String)> {
    let free = || TcpListener::bind("127.0.0.1:0").unwrap();
    // The ports are held until all are known, so that they differ.
    let held = ["24306", "24379", "24080"].map(|port| (port, free()));
    let port = |listener: &TcpListener| listener.local_addr().unwrap().port().to_string();
    held.iter().map(|(ours, listener)| ((*ours).to_owned(), port(listener))).collect()
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
