//! The README's tour, taken.

use std::fs;
use std::net::TcpListener;

use crate::page::{Manner, Reader, can_type};

const README: &str = include_str!("../../../../README.md");
const TOUR: &str = include_str!("../../../../examples/tour.toml");

#[test]
fn the_tour_of_the_readme_goes_as_it_says() {
    if !can_type(&[("curl", "curl")]) {
        return;
    }
    let free = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (memcached, admin) = (free(), free());
    let [memcached, admin] = [memcached, admin].map(|held| held.local_addr().unwrap().to_string());
    let instead = [
        ("target/release/sherwood serve", format!("sherwood serve --admin {admin}")),
        ("--config examples/tour.toml", format!("--config tour.toml --memcached {memcached}")),
        ("nc 127.0.0.1 11311", format!("curl -s telnet://{memcached}")),
        ("127.0.0.1:11311", memcached.clone()),
        ("127.0.0.1:8080", admin.clone()),
    ];
    let instead = instead.map(|(of, with)| (of.to_owned(), with)).to_vec();
    let directory = tempfile::tempdir().unwrap();
    // Slow enough in a build for tests.
    fs::write(directory.path().join("tour.toml"), TOUR.replace("n = 512", "n = 128")).unwrap();
    let said = Reader::at(directory.path(), instead).follow(README, |block| match block.text {
        // Each takes minutes.
        text if text.starts_with("make ") || text.contains("sherwood sim ") => Manner::Leave,
        text if text.contains("sherwood serve ") => Manner::Serve,
        _ => Manner::Type,
    });
    let [_plain, stored, _backends, request, partitions, moved, too_much, loops] = &said[..] else {
        panic!("{said:?}")
    };
    assert!(stored.contains("hello"), "{stored}");
    assert_eq!(request.matches("\"status\":\"miss\"").count(), 3, "{request}");
    assert!(request.contains("\"blocking_backend\":\"ranking\""), "{request}");
    assert_eq!(partitions.matches("\"allocated_bytes\":33554432").count(), 2, "{partitions}");
    assert!(!moved.contains("error") && moved.contains("\"allocated_bytes\":50331648"), "{moved}");
    assert!(too_much.contains("free_bytes"), "{too_much}");
    assert!(loops.contains("policy: robinhood") && loops.contains("kept the budgets"), "{loops}");
}
