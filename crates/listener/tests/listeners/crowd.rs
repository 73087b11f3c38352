//! Listeners on real sockets: hundreds of clients whose connections break in every way.

use sherwood_listener::Protocol;
use std::time::Duration;

use crate::hostile::with_each;
use crate::protocol::Commands;
use crate::support::{Client, Server, options};
use crate::wait::eventually;

/// Number of clients of each listener.
const CLIENTS: usize = 300;
/// Number of answers that a client requests at once: together more than a socket holds.
const ANSWERS: usize = 300;

#[test]
fn clients_receive_only_their_own_answers_while_other_connections_break() {
    with_each(&options(), CLIENTS, |protocol, server| {
        let mut unread = Vec::new();
        for number in 0..CLIENTS {
            let (key, value) = (format!("k{number}"), value(number));
            let mut client = server.connect();
            client.check(&protocol.set(&key, &value), protocol.stored());
            let asked = protocol.get(&key).repeat(ANSWERS);
            let answers = protocol.found(&key, &value).repeat(ANSWERS);
            let set = protocol.set(&key, &value);
            match number % 8 {
                0 => client.send(asked.as_bytes()),
                1 => {
                    client.send(asked.as_bytes());
                    reset(client);
                }
                2 => {
                    client.send(asked.as_bytes());
                    client.expect(&answers[..1000]);
                    reset(client);
                }
                3 => client.send(&set.as_bytes()[..3]),
                4 => client.send(&set.as_bytes()[..set.len() / 2]),
                5 => {
                    client.send(format!("{asked}{}", &set[..set.len() / 2]).as_bytes());
                    client.finish();
                    client.expect(&answers[..5000]);
                }
                6 => {
                    client.send(asked.as_bytes());
                    unread.push((client, answers));
                }
                _ => {
                    client.send(asked.as_bytes());
                    client.finish();
                    assert!(client.rest() == answers, "client {number} was sent something else");
                }
            }
            if number % 10 == 0 {
                check_fresh_client(protocol, server, CLIENTS + number);
            }
        }
        for (client, answers) in &mut unread {
            client.expect(answers);
        }
        drop(unread);
        for number in 2 * CLIENTS..2 * CLIENTS + 20 {
            check_fresh_client(protocol, server, number);
        }
        eventually("every client has gone", || server.connections() == 0);
    });
}

fn value(number: usize) -> String {
    format!("only for client {number} ").repeat(80)
}

fn reset(client: Client) {
    client.0.set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
}

/// Checks that a newly connected client receives its own value and nothing else.
fn check_fresh_client(protocol: Protocol, server: &Server, number: usize) {
    let (key, value) = (format!("k{number}"), value(number));
    let mut client = server.connect();
    let asked = format!("{}{}", protocol.set(&key, &value), protocol.get(&key).repeat(3));
    client.send(asked.as_bytes());
    client.finish();
    let expected = format!("{}{}", protocol.stored(), protocol.found(&key, &value).repeat(3));
    assert_eq!(client.rest(), expected);
}
