//! Executes the book's tour.

use std::fs;

use crate::page::{Execution, Reader, can_type, free_port};

const PAGE: &str = include_str!("../../../../docs/src/tour.md");
const TOUR: &str = include_str!("../../../../examples/tour.toml");

#[test]
fn tour_works_as_written() {
    if !can_type(&[("curl", "curl")]) {
        return;
    }
    let [memcached, admin] = [free_port(), free_port()].map(|port| format!("127.0.0.1:{port}"));
    let instead = [
        ("target/release/sherwood serve", format!("sherwood serve --admin {admin}")),
        ("--config examples/tour.toml", format!("--config tour.toml --memcached {memcached}")),
        ("nc 127.0.0.1 11311", format!("curl -s telnet://{memcached}")),
        ("127.0.0.1:11311", memcached.clone()),
        ("127.0.0.1:8080", admin.clone()),
    ];
    let instead = instead.map(|(of, with)| (of.to_owned(), with)).to_vec();
    let directory = tempfile::tempdir().unwrap();
    // A smaller product, since test builds are slow.
    fs::write(directory.path().join("tour.toml"), TOUR.replace("n = 512", "n = 128")).unwrap();
    let said = Reader::at(directory.path(), instead).follow(PAGE, |block| match block.text {
        // Each takes minutes.
        text if text.starts_with("make ") || text.contains("sherwood sim ") => Execution::Skip,
        text if text.contains("sherwood serve ") => Execution::Background,
        _ => Execution::Run,
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
