//! Checks that the conversations recorded for the tests of meta commands equal those of the
//! installed memcached.
//!
//! They were recorded with 1.6.45. Older versions are only checked against conversations marked for
//! them, and versions before 1.6.18 not at all.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::wait::TIMEOUT;

const ASKED: &str = include_str!("../../src/memcached/meta/asked.txt");
/// Most attempts per conversation: a new second may begin in the middle of a conversation about
/// seconds.
const TRIES: usize = 5;

#[test]
fn recorded_conversations_equal_those_of_memcached() {
    let Some(version) = version() else {
        eprintln!("skipped: no memcached from 1.6.18 on is installed: apt-get install memcached");
        return;
    };
    let mut asked = 0;
    for text in ASKED.split("\n= ").skip(1) {
        let (versions, title) = text.lines().next().and_then(|line| line.split_once(": ")).unwrap();
        if versions == "new" && version < 45 {
            continue;
        }
        let (sent, expected) = (lines(text, '>'), lines(text, '<'));
        let answer = (0..TRIES).map(|_| answer(&[], &sent)).find(|answer| *answer == expected);
        assert!(answer.is_some(), "{title}: {}", self::answer(&[], &sent));
        asked += 1;
    }
    assert!(asked > 15);
}

fn lines(text: &str, mark: char) -> String {
    let line = |line: &str| {
        let line = line.strip_prefix(mark)?;
        Some(format!("{}\r\n", line.strip_prefix(' ').unwrap_or(line).replace("\\t", "\t")))
    };
    text.lines().filter_map(line).collect()
}

/// Returns `x` of the installed memcached's version 1.6.x; none if there is no such memcached.
pub(crate) fn version() -> Option<u32> {
    let output = Command::new("memcached").arg("--version").output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.trim().strip_prefix("memcached 1.6.")?.parse().ok().filter(|&version| version >= 18)
}

/// Returns the answers of a new memcached process with these options to the bytes `sent`.
pub(crate) fn answer(options: &[&str], sent: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let mut command = Command::new("memcached");
    command.args(["-u", "root", "-t", "1", "-m", "64", "-s"]).arg(&path).args(options).stderr(Stdio::null());
    let _memcached = Killed(command.spawn().unwrap());
    let start = Instant::now();
    let mut stream = loop {
        match UnixStream::connect(&path) {
            Ok(stream) => break stream,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                assert!(start.elapsed() < TIMEOUT, "memcached never listened");
                std::thread::yield_now();
            }
            Err(error) => panic!("{error}"),
        }
    };
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(sent.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // The process may already have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
