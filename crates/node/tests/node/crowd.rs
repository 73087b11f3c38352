//! HTTP clients that disconnect at any point, beside clients that do not.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use sherwood_node::Node;
use sherwood_store::Store;
use socket2::SockRef;

use crate::support::{Fake, Http, setup};

/// Number of clients that disconnect early.
const CLIENTS: usize = 210;

#[test]
fn disconnecting_http_clients_do_not_affect_the_others_answers() {
    let secret = "s".repeat(50_000);
    let fake = Fake::new([("secret", secret.as_bytes()), ("mine", b"own value")]);
    let node = Node::start(setup(vec![("catalog", vec![fake as Arc<dyn Store>])])).unwrap();
    let http = Http::of(&node);
    let body = |key| json!({"values": true, "queries": [{"backend": "catalog", "keys": [key]}]});
    let check_fresh_client = || {
        let results = http.request(&body("mine"))["results"].clone();
        assert_eq!((&results[0]["key"], &results[0]["value"]), (&json!("mine"), &json!("own value")));
    };
    let secret = body("secret").to_string();
    let length = secret.len();
    let request = format!(
        "POST /v1/requests HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{secret}"
    );
    // Pipelined requests, with more response bytes than the socket's buffers hold.
    let requests = request.repeat(20);
    for number in 0..CLIENTS {
        let mut client = TcpStream::connect(http.0).unwrap();
        match number % 7 {
            0 => client.write_all(requests.as_bytes()).unwrap(),
            1 => {
                client.write_all(requests.as_bytes()).unwrap();
                reset(client);
            }
            2 => {
                client.write_all(requests.as_bytes()).unwrap();
                client.read_exact(&mut [0; 20_000]).unwrap();
                reset(client);
            }
            3 => client.write_all(&request.as_bytes()[..30]).unwrap(),
            4 => client.write_all(&request.as_bytes()[..request.len() - 10]).unwrap(),
            5 => {
                client.write_all(&request.as_bytes()[..request.len() - 10]).unwrap();
                reset(client);
            }
            _ => {
                client.write_all(requests.as_bytes()).unwrap();
                client.shutdown(Shutdown::Write).unwrap();
            }
        }
        if number % 3 == 0 {
            check_fresh_client();
        }
    }
    (0..20).for_each(|_| check_fresh_client());
    node.stop();
}

fn reset(client: TcpStream) {
    SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
}
