//! A backend that throttles its reads, as DynamoDB does when the capacity of a table is used up.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;

use serde_json::json;
use sherwood_node::Node;
use sherwood_store::{AwsCredentials, DynamoDbOptions, Secret, StoreOptions};

use crate::support::{Http, setup};

/// A service with DynamoDB's API that throttles its first requests and answers the others.
struct Service {
    address: SocketAddr,
    requests: Arc<AtomicU32>,
}

impl Service {
    fn throttling_first(count: u32) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, requests) = (listener.local_addr().unwrap(), Arc::new(AtomicU32::new(0)));
        let received = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let received = Arc::clone(&received);
                thread::spawn(move || converse(stream.unwrap(), &received, count));
            }
        });
        Self { address, requests }
    }

    /// A node whose backend `orders` is a table of the service.
    fn node(&self) -> (Node, Http) {
        // Any variable that is set; cargo sets this one.
        let any = || Secret::Env("CARGO_PKG_NAME".to_owned());
        let credentials =
            AwsCredentials { access_key_id: any(), secret_access_key: any(), session_token: None };
        let options = DynamoDbOptions {
            endpoint: Some(format!("http://{}", self.address)),
            credentials,
            ..DynamoDbOptions::new("orders", "eu-central-1")
        };
        let store = sherwood_store::open("orders", &StoreOptions::DynamoDb(options)).unwrap();
        let node = Node::start(setup(vec![("orders", vec![Arc::clone(&store), store])])).unwrap();
        let http = Http::of(&node);
        (node, http)
    }
}

fn converse(stream: TcpStream, received: &AtomicU32, throttled: u32) {
    let mut input = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut body_bytes = 0;
        loop {
            let mut line = String::new();
            if input.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if let Some(length) = line.to_lowercase().strip_prefix("content-length:") {
                body_bytes = length.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        input.read_exact(&mut vec![0; body_bytes]).unwrap();
        let (status, body) = match received.fetch_add(1, Relaxed) < throttled {
            true => {
                (400, json!({ "__type": "x#ProvisionedThroughputExceededException", "message": "too much" }))
            }
            false => (
                200,
                json!({ "Item": { "value": { "B": "aGVsbG8=" } }, "ConsumedCapacity": { "CapacityUnits": 0.5 } }),
            ),
        };
        let body = body.to_string();
        let answer = format!("HTTP/1.1 {status} So\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        if (&stream).write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

const UP: [&str; 2] = [
    r#"sherwood_replica_up{backend="orders",replica="0"}"#,
    r#"sherwood_replica_up{backend="orders",replica="1"}"#,
];
const THROTTLED: &str = r#"sherwood_backend_errors_total{backend="orders",cause="throttled"}"#;

#[test]
fn throttled_read_is_sent_again_once_and_not_at_once_to_another_replica() {
    let service = Service::throttling_first(1);
    let (_node, http) = service.node();
    assert_eq!(http.key("orders", "a")["value"], "hello");
    assert_eq!((service.requests.load(Relaxed), http.metric(THROTTLED)), (2, 1.0));
}

#[test]
fn key_that_stays_throttled_fails_with_the_cause_and_the_replicas_are_up() {
    let service = Service::throttling_first(u32::MAX);
    let (_node, http) = service.node();
    for asked in 1..=4 {
        let error = http.key("orders", "a")["error"].clone();
        let error = error.as_str().unwrap();
        assert!(error.contains("throttled: could not get 1 key on store `orders`"), "{error}");
        assert!(error.contains("raise the capacity of the table"), "{error}");
        assert_eq!(service.requests.load(Relaxed), 2 * asked);
    }
    assert_eq!(UP.map(|metric| http.metric(metric)), [1.0, 1.0]);
}
