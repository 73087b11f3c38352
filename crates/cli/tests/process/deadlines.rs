//! Executes the book's page on deadlines, with its clients in Python, Go and TypeScript.

use std::fs;
use std::path::Path;

use crate::page::{Execution, Reader, can_type, free_port};

const PAGE: &str = include_str!("../../../../docs/src/deadlines.md");
const CONFIG: &str = include_str!("../../../../examples/deadlines.toml");
/// Files of `examples/deadlines` that the page uses.
const CLIENTS: [&str; 5] =
    ["deadlines.py", "deadlines.go", "deadlines.ts", "package.json", "package-lock.json"];

#[test]
fn deadlines_page_works_as_written() {
    let programs =
        [("curl", "curl"), ("python3", "python3"), ("go", "golang-go"), ("node", "nodejs"), ("npm", "npm")];
    if !can_type(&programs) {
        return;
    }
    let [memcached, admin] = [free_port(), free_port()].map(|port| format!("127.0.0.1:{port}"));
    // The home is an empty directory here, and the standard library takes Go a minute to compile.
    let compiled = concat!(env!("CARGO_TARGET_TMPDIR"), "/go");
    let instead = [
        ("target/release/sherwood serve", format!("sherwood serve --admin {admin}")),
        ("--config examples/deadlines.toml", format!("--config deadlines.toml --memcached {memcached}")),
        ("target/release/sherwood load", "sherwood load".to_owned()),
        ("nc 127.0.0.1 11311", format!("curl -s telnet://{memcached}")),
        ("go run", format!("GOCACHE={compiled} go run")),
        ("127.0.0.1:11311", memcached.clone()),
        ("127.0.0.1:8080", admin.clone()),
    ];
    let instead = instead.map(|(of, with)| (of.to_owned(), with)).to_vec();
    let directory = tempfile::tempdir().unwrap();
    // A smaller product, since test builds are slow.
    fs::write(directory.path().join("deadlines.toml"), CONFIG.replace("n = 512", "n = 128")).unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/deadlines");
    let there = directory.path().join("examples/deadlines");
    fs::create_dir_all(&there).unwrap();
    for name in CLIENTS {
        fs::copy(here.join(name), there.join(name)).unwrap();
    }
    let said = Reader::at(directory.path(), instead).follow(PAGE, |block| match block.text {
        text if text.contains("sherwood serve ") => Execution::Background,
        _ => Execution::Run,
    });
    let [_served, _in_time, _over, _stored, _load, metrics, python, go, typescript] = &said[..] else {
        panic!("{said:?}")
    };
    assert!(metrics.contains("sherwood_deadline_missed_total{backend=\"ranking\""), "{metrics}");
    for client in [python, go, typescript] {
        assert_eq!(outcomes(client).iter().sum::<u32>(), 20, "{client}");
    }
}

/// The numbers of a client's line `20 requests: 5 met, 1 late, 14 rejected`.
fn outcomes(said: &str) -> Vec<u32> {
    let line = said.lines().find_map(|line| line.strip_prefix("20 requests: ")).expect(said);
    line.split(", ").map(|part| part.split(' ').next().unwrap().parse().unwrap()).collect()
}
