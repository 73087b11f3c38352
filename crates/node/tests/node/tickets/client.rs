//! A node whose backend takes turns by tickets.

use std::net::TcpListener;
use std::sync::Arc;

use super::support::{Client, Proxy, ask, eventually, metric, node, run, source, within};
use sherwood_node::Node;

const SCHEDULER: &str = "[[scheduler]]\ntimeout = \"10m\"";
const FAILED_OPEN: &str = "sherwood_tickets_failed_open_total{backend=\"ranking\"}";
const WAITING: &str = "sherwood_queue_waiting{scheduler=\"default\"}";

/// Starts a node whose backend has a replica for each of these schedulers.
fn client_of(schedulers: &[&str]) -> Arc<Node> {
    let replica = |url: &&str| format!("{{ kind = \"compute\", n = 1, tickets = \"{url}\" }}");
    let replicas: Vec<_> = schedulers.iter().map(replica).collect();
    Arc::new(node(&format!(
        "[[backend]]\nname = \"ranking\"\ntimeout = \"60s\"\nreplicas = [{}]\n\
         dispatch = {{ balance = \"tickets\", admit = \"deadline\" }}\n",
        replicas.join(", ")
    )))
}

fn url(node: &Node) -> String {
    node.admin_url().expect("it has one")
}

#[test]
fn call_waits_for_its_turn_and_releases_it() {
    let scheduler = node(SCHEDULER);
    let client = client_of(&[&url(&scheduler)]);
    run(async {
        let mut other = Client::of(source(&scheduler, "default")).await;
        let held = other.get(None).await.unwrap().ticket;
        let asking = Arc::clone(&client);
        let answer = tokio::task::spawn_blocking(move || ask(&asking, "a", ""));
        eventually("the call waits", || metric(&scheduler, WAITING) == 1.0).await;
        other.release(held, None).await.unwrap();
        assert_eq!(within(answer).await.unwrap()["status"], "miss");
        eventually("its ticket is released", || {
            metric(&scheduler, "sherwood_tickets_held{scheduler=\"default\"}") == 0.0
        })
        .await;
        assert_eq!(metric(&client, FAILED_OPEN), 0.0);
    });
}

#[test]
fn better_ticket_of_two_replicas_is_kept_and_the_other_cancelled() {
    let (busy, idle) = (node(SCHEDULER), node(SCHEDULER));
    let client = client_of(&[&url(&busy), &url(&idle)]);
    run(async {
        let mut other = Client::of(source(&busy, "default")).await;
        for _ in 0..64 {
            let ticket = other.get(None).await.unwrap().ticket;
            other.release(ticket, Some(1_000_000)).await.unwrap();
        }
        other.get(None).await.unwrap();
        let asking = Arc::clone(&client);
        let answers = tokio::task::spawn_blocking(move || {
            (0..10).map(|key| ask(&asking, &key.to_string(), "")["status"].clone()).collect::<Vec<_>>()
        });
        assert_eq!(within(answers).await.unwrap(), ["miss"; 10]);
        eventually("the tickets have ended", || metric(&busy, WAITING) == 0.0).await;
        assert_eq!(metric(&client, FAILED_OPEN), 0.0);
    });
}

#[test]
fn call_that_would_come_too_late_is_rejected_by_the_scheduler_unless_it_starts_at_once() {
    let scheduler = node(SCHEDULER);
    let client = client_of(&[&url(&scheduler)]);
    run(async {
        let mut other = Client::of(source(&scheduler, "default")).await;
        for _ in 0..64 {
            let ticket = other.get(None).await.unwrap().ticket;
            other.release(ticket, Some(30_000_000)).await.unwrap();
        }
        let held = other.get(None).await.unwrap().ticket;
        let asking = Arc::clone(&client);
        let ask_in_time = move || ask(&asking, "a", "\"deadline_ms\": 5000,");
        let late = within(tokio::task::spawn_blocking(ask_in_time.clone())).await.unwrap();
        assert_eq!(late["status"], "rejected", "{late}");
        assert!(late["expected_ms"].as_f64().unwrap() > 20_000.0, "{late}");
        other.release(held, None).await.unwrap();
        let at_once = within(tokio::task::spawn_blocking(ask_in_time)).await.unwrap();
        assert_eq!(at_once["status"], "miss", "{at_once}");
        assert_eq!(metric(&client, "sherwood_rejected_total{reason=\"deadline\"}"), 1.0);
    });
}

#[test]
fn call_goes_on_without_a_ticket_when_its_scheduler_is_killed() {
    let scheduler = node(SCHEDULER);
    let client = client_of(&[&url(&scheduler)]);
    run(async {
        let mut other = Client::of(source(&scheduler, "default")).await;
        other.get(None).await.unwrap();
        let asking = Arc::clone(&client);
        let answer = tokio::task::spawn_blocking(move || ask(&asking, "a", ""));
        eventually("the call waits", || metric(&scheduler, WAITING) == 1.0).await;
        tokio::task::spawn_blocking(move || drop(scheduler)).await.unwrap();
        assert_eq!(within(answer).await.unwrap()["status"], "miss");
        assert_eq!(metric(&client, FAILED_OPEN), 1.0);
        let asking = Arc::clone(&client);
        let answer = tokio::task::spawn_blocking(move || ask(&asking, "b", ""));
        assert_eq!(within(answer).await.unwrap()["status"], "miss");
        assert_eq!(metric(&client, FAILED_OPEN), 2.0);
    });
}

#[test]
fn call_waiting_for_a_ticket_waits_on_over_a_new_connection_when_its_own_is_cut() {
    let scheduler = node(SCHEDULER);
    let proxy = Proxy::before(scheduler.admin().expect("it has one"));
    let client = client_of(&[&proxy.url()]);
    run(async {
        let mut other = Client::of(source(&scheduler, "default")).await;
        let held = other.get(None).await.unwrap().ticket;
        // A call goes on without a ticket if the machine is so busy that it waits 50 ms for one.
        let mut keys = (0..).map(|key: u64| key.to_string());
        let answer = loop {
            let (asking, key) = (Arc::clone(&client), keys.next().expect("another key"));
            let answer = tokio::task::spawn_blocking(move || ask(&asking, &key, ""));
            let waits = || metric(&scheduler, WAITING) == 1.0;
            eventually("the call waits, or has ended", || answer.is_finished() || waits()).await;
            if !answer.is_finished() {
                break answer;
            }
        };
        let failed_open = metric(&client, FAILED_OPEN);
        assert_eq!(proxy.cut(), 1);
        eventually("it waits on a new connection", || proxy.open() == 1).await;
        other.release(held, None).await.unwrap();
        assert_eq!(within(answer).await.unwrap()["status"], "miss");
        assert_eq!(metric(&client, FAILED_OPEN), failed_open);
    });
}

#[test]
fn call_goes_on_without_a_ticket_when_its_scheduler_is_silent() {
    // Accepts connections in the kernel, and answers nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = client_of(&[&format!("http://{}", silent.local_addr().unwrap())]);
    run(async {
        let asking = Arc::clone(&client);
        let answers = tokio::task::spawn_blocking(move || {
            ["a", "b"].map(|key| ask(&asking, key, "\"deadline_ms\": 20000,")["status"].clone())
        });
        assert_eq!(within(answers).await.unwrap(), ["miss", "miss"]);
        assert_eq!(metric(&client, FAILED_OPEN), 2.0);
    });
}
