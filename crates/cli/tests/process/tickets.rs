//! Executes the book's page on tickets.

use std::fs;

use crate::page::{Execution, Reader, can_type, free_port};

const PAGE: &str = include_str!("../../../../docs/src/tickets.md");
const CONFIG: &str = include_str!("../../../../examples/tickets.toml");

#[test]
fn tickets_page_works_as_written() {
    if !can_type(&[("curl", "curl")]) {
        return;
    }
    let admin = format!("127.0.0.1:{}", free_port());
    let instead = [
        ("target/release/sherwood serve", format!("sherwood serve --admin {admin}")),
        ("examples/tickets.toml", "tickets.toml".to_owned()),
        ("127.0.0.1:8080", admin.clone()),
    ];
    let instead = instead.map(|(of, with)| (of.to_owned(), with)).to_vec();
    let directory = tempfile::tempdir().unwrap();
    // A smaller product, since test builds are slow.
    let config = CONFIG.replace("n = 512", "n = 128").replace("127.0.0.1:8080", &admin);
    fs::write(directory.path().join("tickets.toml"), config).unwrap();
    let said = Reader::at(directory.path(), instead).follow(PAGE, |block| match block.text {
        text if text.contains("sherwood serve ") => Execution::Background,
        _ => Execution::Run,
    });
    let [_served, _asked, metrics] = &said[..] else { panic!("{said:?}") };
    let expired = "sherwood_tickets_expired_total{scheduler=\"ranking-0\"} 0\n";
    assert!(metrics.contains(expired), "{metrics}");
}
