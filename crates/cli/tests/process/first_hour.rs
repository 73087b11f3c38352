//! The book's page on the first hour, lived through.

use std::net::TcpListener;

use crate::page::{Manner, Reader, can_type};

const PAGE: &str = include_str!("../../../../docs/src/first-hour.md");

/// The ports that the page takes for its own, and free ones in their place.
fn ports() -> Vec<(String, String)> {
    let free = || TcpListener::bind("127.0.0.1:0").unwrap();
    // Held until all are known, or two might be one.
    let held = ["24306", "24379", "24080"].map(|port| (port, free()));
    let port = |listener: &TcpListener| listener.local_addr().unwrap().port().to_string();
    held.iter().map(|(ours, listener)| ((*ours).to_owned(), port(listener))).collect()
}

#[test]
fn the_first_hour_goes_as_the_page_says() {
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
    Reader::at(directory.path(), ports()).follow(PAGE, |_| Manner::Type);
}
