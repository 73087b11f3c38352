//! Exit statuses of `sherwood load`.
#![allow(clippy::disallowed_methods, reason = "a target that refuses everything is a thread of the test")]

use std::io::{Read, Write};

use assert_cmd::Command;

fn load(line: &str) -> assert_cmd::assert::Assert {
    Command::cargo_bin("sherwood").unwrap().arg("load").args(line.split_whitespace()).assert()
}

fn stderr(assert: assert_cmd::assert::Assert) -> String {
    String::from_utf8(assert.get_output().stderr.clone()).unwrap()
}

/// Returns a loopback address without a listener.
fn unused_address() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[test]
fn invalid_load_command_exits_with_2_and_the_reason() {
    for (line, part) in [
        ("--target redis://localhost:6379/1", "database 0"),
        ("--target memcached://localhost:1 --zipf=11", "zipf exponent of 11 is out of range"),
        ("--target memcached://localhost:1 --zipf -1", "zipf exponent of -1 is out of range"),
        ("--target memcached://localhost:1 --rate 0", "arrival rate 0"),
        ("--target memcached://localhost:1 --ops 0", "0 is not in 1.."),
        ("--target memcached://localhost:1 --connections 0", "connections of 0 is out of range"),
        ("--target http://localhost:1 --mix onerf --profile s1000", "no profile `s1000`"),
        ("--target http://localhost:1 --mix drf", "onerf"),
        ("--target redis://localhost:1 --deadline-ms 5", "the other protocols state none"),
        ("--target memcached-binary://localhost:1 --deadline-ms 5", "the other protocols state none"),
        (
            "--target memcached://localhost:1 --deadline-ms 5 --batch 2",
            "--deadline-ms applies to gets of one key",
        ),
        ("--target memcached://localhost:1 --deadline-ms 0", "above 0 and at most 86400000 ms"),
        ("--target memcached://localhost:1 --deadline-ms -1", "above 0 and at most 86400000 ms"),
        ("--target memcached://localhost:1 --deadline-ms NaN", "above 0 and at most 86400000 ms"),
        ("--target memcached://localhost:1 --deadline-ms 86400001", "above 0 and at most 86400000 ms"),
        ("--target memcached://localhost:1 --deadline-ms soon", "is not a number of milliseconds"),
    ] {
        let stderr = stderr(load(line).code(2).stdout(""));
        assert!(stderr.contains(part), "{line}: {stderr}");
    }
}

#[test]
fn load_on_an_unreachable_target_exits_with_1_and_names_it() {
    let address = unused_address();
    for line in [format!("--target memcached://{address}"), format!("--target http://{address} --mix onerf")]
    {
        let stderr = stderr(load(&line).code(1).stdout(""));
        assert!(stderr.contains(&address), "{line}: {stderr}");
    }
}

/// Runs a load against a server that gives this answer to every operation; returns the standard
/// error and the report of the load.
#[track_caller]
fn refused(scheme: &str, answer: &'static [u8]) -> (String, String) {
    let target = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = target.local_addr().unwrap();
    // The server reads every operation, and ends with the load.
    let refuse = std::thread::spawn(move || {
        let (mut stream, _) = target.accept().unwrap();
        let mut asked = [0; 4_096];
        while stream.read(&mut asked).unwrap() > 0 {
            stream.write_all(answer).unwrap();
        }
    });
    let refused = load(&format!("--target {scheme}://{address} --get-ratio 1 --ops 3")).code(1);
    refuse.join().unwrap();
    let stdout = String::from_utf8_lossy(&refused.get_output().stdout).into_owned();
    (stderr(refused), stdout)
}

#[test]
fn load_on_a_refusing_target_exits_with_1_and_a_report() {
    for (scheme, answer, quoted) in [
        ("memcached", &b"ERROR\r\n"[..], "ERROR"),
        ("redis", b"-NOAUTH Authentication required.\r\n", "NOAUTH Authentication required."),
    ] {
        let (said, report) = refused(scheme, answer);
        let first = format!("sherwood: the first error: `{quoted}`\n");
        assert!(said.starts_with(&first), "{said}");
        assert!(said.contains("every operation failed: 3 were refused"), "{said}");
        assert!(report.contains("errors        3"), "{report}");
    }
}
