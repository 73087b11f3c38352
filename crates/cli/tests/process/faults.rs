//! Faults of backends: each appears in the answer, in the log and in a counter, and other backends
//! are still served.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use crate::support::{Server, TIMEOUT};

/// Behaviour of a server on a connection after it has read a request.
#[derive(Clone, Copy)]
enum Behaviour {
    /// Sends this answer and waits.
    Sends(&'static str),
    /// Sends this answer and closes the connection.
    Closes(&'static str),
    /// Sends nothing.
    Silent,
}

/// Starts a server on a free port.
fn server(behaviour: Behaviour) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || converse(stream.unwrap(), behaviour));
        }
    });
    address
}

fn converse(mut stream: TcpStream, behaviour: Behaviour) {
    let mut asked = [0; 4096];
    while let Ok(1..) = stream.read(&mut asked) {
        let said = match behaviour {
            Behaviour::Sends(words) | Behaviour::Closes(words) => stream.write_all(words.as_bytes()),
            Behaviour::Silent => Ok(()),
        };
        if said.is_err() || matches!(behaviour, Behaviour::Closes(_)) {
            return;
        }
    }
}

/// A backend with one kind of fault.
struct Fault {
    name: &'static str,
    /// The store's configuration, in which `ADDRESS` is the server's address.
    store: &'static str,
    behaviour: Behaviour,
    label: &'static str,
    /// The expected message, without the remedy.
    says: &'static str,
}

const MEMCACHED: &str = r#"{ kind = "memcached", address = "ADDRESS", answer_timeout = "100ms" }"#;
const REDIS: &str = r#"{ kind = "redis", address = "ADDRESS" }"#;
const HTTP: &str = r#"{ kind = "http", url = "http://ADDRESS/{key}", value_max = "1KiB" }"#;

const FAULTS: [Fault; 14] = [
    Fault {
        name: "absent",
        store: r#"{ kind = "http", url = "http://127.0.0.1:1/{key}" }"#,
        behaviour: Behaviour::Silent,
        label: "unreachable",
        says: "127.0.0.1:1 cannot be reached (Connection refused (os error 111)); start the service, or correct the backend's `url`",
    },
    Fault {
        name: "nameless",
        store: r#"{ kind = "redis", address = "sherwood.invalid:1" }"#,
        behaviour: Behaviour::Silent,
        label: "name",
        says: "; correct the backend's `address`, or the name service",
    },
    Fault {
        name: "mute",
        store: MEMCACHED,
        behaviour: Behaviour::Silent,
        label: "silent",
        says: "gave no answer within 100 ms; see whether the server hangs or has too much to do, or raise the backend's `answer_timeout`",
    },
    Fault {
        name: "breaking",
        store: REDIS,
        behaviour: Behaviour::Closes("*1\r\n$9\r\nval"),
        label: "reset",
        says: "broke the connection off (it closed the connection); look at the server's log, and whether it expects TLS",
    },
    Fault {
        name: "foreign",
        store: MEMCACHED,
        behaviour: Behaviour::Sends("SSH-2.0-OpenSSH_9.2\r\n"),
        label: "protocol",
        says: "; see whether `kind` and `address` belong together",
    },
    Fault {
        name: "locked",
        store: REDIS,
        behaviour: Behaviour::Sends("-NOPERM User default has no permissions to run the 'mget' command\r\n"),
        label: "credentials",
        says: "; correct `user`, `password_file` or `password_env`, or the user's rights (`ACL`)",
    },
    Fault {
        name: "forbidden",
        store: HTTP,
        behaviour: Behaviour::Sends("HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n"),
        label: "credentials",
        says: "(status 403 Forbidden); correct the backend's `headers`, or what the service lets them do",
    },
    Fault {
        name: "old",
        store: REDIS,
        behaviour: Behaviour::Sends("-ERR unknown command 'MGET'\r\n"),
        label: "statement",
        says: "(ERR unknown command 'MGET'); see whether `kind` and `address` belong together",
    },
    Fault {
        name: "small",
        store: r#"{ kind = "redis", address = "ADDRESS", db = 99 }"#,
        behaviour: Behaviour::Sends("-ERR DB index is out of range\r\n"),
        label: "missing",
        says: "; correct the backend's `db`, or raise the server's `databases`",
    },
    Fault {
        name: "clustered",
        store: REDIS,
        behaviour: Behaviour::Sends("-MOVED 3999 127.0.0.1:6381\r\n"),
        label: "wrong_server",
        says: "put a proxy for clusters between",
    },
    Fault {
        name: "long",
        store: HTTP,
        behaviour: Behaviour::Sends("HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n"),
        label: "too_large",
        says: "the answer is larger than 1024 bytes; ask for less, or raise the backend's `value_max`",
    },
    Fault {
        name: "loaded",
        store: HTTP,
        behaviour: Behaviour::Sends("HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n"),
        label: "busy",
        says: "; try again later, or find out who they are",
    },
    Fault {
        name: "forging",
        store: MEMCACHED,
        behaviour: Behaviour::Sends("SERVER_ERROR a\u{1b}[2J\rERROR forged: by a server\r\n"),
        label: "server",
        says: r"the server failed (a\u{1b}[2J\rERROR forged: by a server); look at its log",
    },
    Fault {
        name: "late",
        store: r#"{ kind = "redis", address = "ADDRESS" }"#,
        behaviour: Behaviour::Silent,
        label: "timeout",
        says: "the backend's time-out; see whether the server is overloaded or hangs, or raise the backend's `timeout`",
    },
];

fn configuration() -> String {
    let fine = server(Behaviour::Sends("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine"));
    let healthy = ("healthy", HTTP.replace("ADDRESS", &fine), "30s");
    let faults = FAULTS.iter().map(|fault| {
        let timeout = if fault.label == "timeout" { "200ms" } else { "30s" };
        (fault.name, fault.store.replace("ADDRESS", &server(fault.behaviour)), timeout)
    });
    let backend = |(name, store, timeout)| {
        format!("[[backend]]\nname = \"{name}\"\ntimeout = \"{timeout}\"\nstore = {store}\n")
    };
    let backends: String = std::iter::once(healthy).chain(faults).map(backend).collect();
    format!("[admin]\nbind = \"127.0.0.1:0\"\n{backends}")
}

/// Sends an HTTP request and returns the answer's body.
fn asked(address: &str, method: &str, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").expect("an answer has a head").1.to_owned()
}

#[test]
fn fault_is_in_answer_log_and_counter_and_affects_no_other_backend() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("node.toml");
    std::fs::write(&path, configuration()).unwrap();
    let node = Server::start(&["--config", path.to_str().unwrap()]);
    let admin = node.address("admin");
    for Fault { name, label, says, .. } in FAULTS {
        let queries = serde_json::json!({"queries": [
            {"backend": name, "keys": ["k"]},
            {"backend": "healthy", "keys": [format!("beside-{name}")]},
        ]});
        let answer: serde_json::Value =
            serde_json::from_str(&asked(&admin, "POST", "/v1/requests", &queries.to_string())).unwrap();
        let results = &answer["results"];
        assert_eq!(results[1]["value"], "fine", "beside {name}: {answer}");
        let error = results[0]["error"].as_str().unwrap_or_else(|| panic!("{name}: {answer}"));
        assert!(error.contains(&format!(": {label}: ")) && error.contains(says), "{name}: {error}");
    }
    let metrics = asked(&admin, "GET", "/metrics", "");
    for Fault { name, label, .. } in FAULTS {
        let counter = format!("sherwood_backend_errors_total{{backend=\"{name}\",cause=\"{label}\"}} ");
        let of_backend = format!("sherwood_backend_errors_total{{backend=\"{name}\"");
        assert!(metrics.contains(&counter), "no {counter} in {metrics}");
        assert_eq!(metrics.matches(&of_backend).count(), 1, "{name}: {metrics}");
    }
    assert!(!metrics.contains("sherwood_backend_errors_total{backend=\"healthy\""), "{metrics}");
    node.signal(libc::SIGTERM);
    let (status, log) = node.end();
    assert!(status.success(), "{log}");
    for Fault { name, label, says, .. } in FAULTS {
        let (backend, cause) = (format!("backend=\"{name}\""), format!("cause=\"{label}\""));
        let is_its = |line: &&str| line.contains(&backend) && line.contains(&cause) && line.contains(says);
        assert_eq!(log.lines().filter(is_its).count(), 1, "{name} in {log}");
    }
    assert!(
        !log.contains("backend=\"healthy\"") && !log.contains('\u{1b}') && !log.contains("\rERROR"),
        "{log}"
    );
}
