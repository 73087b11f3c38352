//! Observation of a running node through its admin API.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use crate::admin::AdminClient;
use crate::exit::Failure;

/// Data of a node over the observation period.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    pub(super) recording: Recording,
    pub(super) slo: Slo,
    /// Partitions at the beginning and at the end.
    pub(super) partitions: [Vec<Partition>; 2],
    /// The available curves by partition.
    pub(super) curves: BTreeMap<String, Curve>,
}

/// The answer of `/v1/recording`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Recording {
    pub(super) recorded_s: f64,
    pub(super) total_bytes: u64,
    pub(super) slo_observe_s: f64,
    pub(super) hit_latency_ms: Option<f64>,
    pub(super) requests: Vec<RequestKind>,
    pub(super) other_requests: u64,
    pub(super) backends: Vec<ObservedBackend>,
}

/// Requests to the same set of backends.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct RequestKind {
    pub(super) requests: u64,
    pub(super) keys: BTreeMap<String, Keys>,
}

/// Distribution of the number of keys of a request.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Keys {
    pub(super) mean: f64,
    pub(super) deviation: f64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct ObservedBackend {
    pub(super) name: String,
    pub(super) timeout_ms: Option<f64>,
    pub(super) replicas: Option<u64>,
    /// Concurrent calls of all replicas together.
    pub(super) calls_at_once_max: Option<u64>,
    pub(super) calls: u64,
    pub(super) call_ms: Vec<(f64, f64)>,
}

/// The answer of `/v1/slo`.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Slo {
    pub(super) percentile: f64,
    pub(super) bound_ms: f64,
    pub(super) window_s: f64,
}

/// An element of `/v1/partitions`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Partition {
    pub(super) name: String,
    pub(super) backend: String,
    pub(super) used_bytes: u64,
    pub(super) items: u64,
    pub(super) hits: u64,
    pub(super) misses: u64,
}

/// The answer of `/v1/mrc/{partition}`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Curve {
    pub(super) bytes: Vec<u64>,
    pub(super) miss_ratio: Vec<f64>,
    pub(super) sampled_accesses: u64,
    pub(super) unique: u64,
}

/// Allowance for the requests to a busy node before and after the observation: two answers.
const ASKING_TIME: Duration = Duration::from_secs(120);

impl Observed {
    /// Observes a node until `wait` returns, after `time`; returns none when `wait` returns false.
    /// If this process dies, the node's recording ends by itself.
    pub(super) fn watch(
        admin: &AdminClient,
        time: Duration,
        wait: impl FnOnce() -> bool,
    ) -> Result<Option<Self>, Failure> {
        admin.ask("POST", &format!("/v1/recording?for_s={}", (time + ASKING_TIME).as_secs()), "")?;
        let observed = Self::look(admin, wait);
        // The node's recording is ended in every case.
        let ended = admin.ask("DELETE", "/v1/recording", "");
        let observed = observed?;
        ended.map(|_| observed)
    }

    fn look(admin: &AdminClient, wait: impl FnOnce() -> bool) -> Result<Option<Self>, Failure> {
        let before = admin.get("/v1/partitions")?;
        if !wait() {
            return Ok(None);
        }
        // Partitions are read within the recorded period at both ends, so that all lookups counted
        // in between are part of the recording.
        let after: Vec<Partition> = admin.get("/v1/partitions")?;
        let recording = admin.get("/v1/recording")?;
        // A node may be configured to keep no curves.
        let curve = |partition: &Partition| {
            let curve = admin.get(&format!("/v1/mrc/{}", partition.name)).ok()?;
            Some((partition.name.clone(), curve))
        };
        let curves = after.iter().filter_map(curve).collect();
        Ok(Some(Self { recording, slo: admin.get("/v1/slo")?, partitions: [before, after], curves }))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use serde_json::{Value, json};

    use super::*;
    use crate::admin::Access;
    use crate::sim::record::describe::describe;

    /// Serves as a node at which a request for four keys begins before each question to the admin
    /// API, and never ends. Ends with the node's recording, and returns the questions.
    fn node_of_requests_under_way(listener: &TcpListener) -> Vec<String> {
        let (mut begun, mut recorded_from) = (0, 0);
        let mut asked = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.expect("a client");
            let mut head = BufReader::new(&stream).lines().map_while(Result::ok);
            let line = head.next().expect("a request");
            head.find(String::is_empty).expect("the end of its head");
            let question = line.trim_end_matches(" HTTP/1.1").to_owned();
            begun += 1;
            let answer = match question.split('?').next().expect("one part") {
                "POST /v1/recording" => {
                    recorded_from = begun;
                    Value::Null
                }
                "GET /v1/partitions" => json!([{
                    "name": "a", "backend": "a", "used_bytes": 0, "items": 0, "hits": 0, "misses": 4 * begun,
                }]),
                "GET /v1/recording" => json!({
                    "recorded_s": 1.0, "total_bytes": 1 << 20, "slo_observe_s": 5.0, "hit_latency_ms": null,
                    "requests": [{"requests": begun - recorded_from, "keys": {"a": {"mean": 4.0, "deviation": 0.0}}}],
                    "other_requests": 0,
                    "backends": [{"name": "a", "timeout_ms": null, "replicas": null, "calls_at_once_max": null,
                        "calls": 0, "call_ms": []}],
                }),
                "GET /v1/slo" => json!({"percentile": 99.0, "bound_ms": 150.0, "window_s": 60.0}),
                _ => Value::Null,
            };
            let answer = answer.to_string();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close", answer.len());
            write!(stream, "{head}\r\n\r\n{answer}").expect("an answer");
            let over = question.starts_with("DELETE");
            asked.push(question);
            if over {
                break;
            }
        }
        asked
    }

    #[test]
    fn keys_of_requests_in_flight_are_not_counted_as_listener_lookups() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let node = std::thread::spawn(move || node_of_requests_under_way(&listener));
        let admin = Access::default().client("--node", &address).expect("it is an address");
        let observed = Observed::watch(&admin, Duration::from_secs(1), || true);
        let asked = node.join().expect("it was told that the recording is over");
        assert_eq!(asked.first().map(String::as_str), Some("POST /v1/recording?for_s=121"));
        let observed = observed.expect("answers").expect("nobody stopped it");
        let misses = |look: usize| observed.partitions[look][0].misses;
        assert!(misses(0) < misses(1), "keys were looked up while it was watched");
        let described = describe(&observed).expect("something was asked");
        assert_eq!(described.document["request_types"], json!([[1.0, [[1, 4]]]]), "{:?}", described.notes);
    }

    #[test]
    fn listener_lookups_become_requests_of_one_key() {
        let partition = |misses| Partition {
            name: "a".to_owned(),
            backend: "a".to_owned(),
            used_bytes: 0,
            items: 0,
            hits: 0,
            misses,
        };
        let keys = BTreeMap::from([("a".to_owned(), Keys { mean: 4.0, deviation: 0.0 })]);
        let backend = ObservedBackend {
            name: "a".to_owned(),
            timeout_ms: None,
            replicas: None,
            calls_at_once_max: None,
            calls: 0,
            call_ms: Vec::new(),
        };
        let recording = Recording {
            recorded_s: 10.0,
            total_bytes: 1 << 20,
            slo_observe_s: 5.0,
            hit_latency_ms: None,
            requests: vec![RequestKind { requests: 30, keys }],
            other_requests: 0,
            backends: vec![backend],
        };
        let observed = Observed {
            recording,
            slo: Slo { percentile: 99.0, bound_ms: 150.0, window_s: 60.0 },
            partitions: [vec![partition(7)], vec![partition(7 + 120 + 90)]],
            curves: BTreeMap::new(),
        };
        let described = describe(&observed).expect("something was asked");
        assert_eq!(described.document["request_types"], json!([[0.25, [[1, 4]]], [0.75, [[1, 1]]]]));
        assert_eq!(described.document["profiles"]["node"]["request_rate"], 12.0);
    }
}
