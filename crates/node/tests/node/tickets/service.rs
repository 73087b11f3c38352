//! Turns, refusals, leases and bounds of the service.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use sherwood_config::SchedulerSource;
use sherwood_store::TlsOptions;
use sherwood_tickets::Endpoint;
use sherwood_tickets::generated::GetTicketRequest;
use tonic::{Code, Status};

use super::support::{Client, eventually, metric, node, run, source, within};

fn code<T>(result: Result<T, Status>) -> Code {
    result.err().map_or(Code::Ok, |status| status.code())
}

#[test]
fn turns_come_in_the_order_of_deadlines() {
    let node = node("[[scheduler]]\ntimeout = \"10m\"");
    run(async {
        let mut client = Client::of(source(&node, "default")).await;
        let first = client.get(Some(50_000_000)).await.unwrap();
        assert!(first.meets_deadline && !first.breaks_another);
        assert_eq!((first.expected_us, first.lease_us), (0, 600_000_000));
        let late = client.get(Some(60_000_000)).await.unwrap().ticket;
        let early = client.get(Some(40_000_000)).await.unwrap().ticket;
        assert!([first.ticket, late, early].iter().all(|ticket| *ticket != 0));
        client.wait(first.ticket).await.unwrap();
        let mut other = client.clone();
        let turn_of_late = tokio::spawn(async move { other.wait(late).await });
        client.release(first.ticket, Some(1_000)).await.unwrap();
        client.wait(early).await.unwrap();
        assert!(!turn_of_late.is_finished());
        client.cancel(early).await.unwrap();
        within(turn_of_late).await.unwrap().unwrap();
        client.release(late, None).await.unwrap();
        assert_eq!(metric(&node, "sherwood_tickets_held{scheduler=\"default\"}"), 0.0);
    });
    node.stop();
}

#[test]
fn ticket_that_is_unknown_ended_or_waits_is_refused_with_its_reason() {
    let node = node("[[scheduler]]\nname = \"catalog-1\"\ntimeout = \"10m\"");
    run(async {
        let mut client = Client::of(source(&node, "catalog-1")).await;
        let first = client.get(None).await.unwrap().ticket;
        let second = client.get(None).await.unwrap().ticket;
        assert_eq!(code(client.release(second, None).await), Code::FailedPrecondition);
        client.release(first, Some(5)).await.unwrap();
        for ticket in [first, 0, u64::MAX, second ^ (1 << 40)] {
            assert_eq!(code(client.release(ticket, None).await), Code::NotFound);
            assert_eq!(code(client.cancel(ticket).await), Code::NotFound);
            assert_eq!(code(client.wait(ticket).await), Code::NotFound);
        }
        client.release(second, Some(5)).await.unwrap();
        let mut stranger = Client { scheduler: "elsewhere".to_owned(), ..client.clone() };
        let refused = stranger.get(None).await.unwrap_err();
        assert_eq!(refused.code(), Code::NotFound);
        assert!(refused.message().contains("catalog-1"), "{refused}");
    });
    node.stop();
}

#[test]
fn request_out_of_range_is_refused_and_absurd_latency_is_ignored() {
    let node = node("[[scheduler]]\ntimeout = \"10m\"");
    run(async {
        let mut client = Client::of(source(&node, "default")).await;
        for within_us in [0, -1, i64::MIN, 24 * 3_600_000_000 + 1, i64::MAX] {
            let refused = client.get(Some(within_us)).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument);
            assert!(refused.message().contains("at most 24 hours"), "{refused}");
        }
        let wrong = GetTicketRequest { operation: 7, ..client.request(None) };
        assert_eq!(code(client.calls.get_ticket(wrong).await), Code::InvalidArgument);
        let many = GetTicketRequest { keys: 10_001, ..client.request(None) };
        assert_eq!(code(client.calls.get_ticket_and_wait(many).await), Code::InvalidArgument);
        // With so many latencies an estimate would be made of them.
        for latency_us in [i64::MIN, -1, i64::MAX, 601_000_000].into_iter().cycle().take(100) {
            let ticket = client.get(None).await.unwrap().ticket;
            client.release(ticket, Some(latency_us)).await.unwrap();
        }
        assert_eq!(client.get(None).await.unwrap().expected_us, 0);
        assert_eq!(metric(&node, "sherwood_queue_latencies_dropped_total{scheduler=\"default\"}"), 100.0);
    });
    node.stop();
}

#[test]
fn flood_of_tickets_is_refused_at_the_bound() {
    let node = node("[[scheduler]]\ntickets_max = 50\ntimeout = \"10m\"");
    run(async {
        let mut client = Client::of(source(&node, "default")).await;
        let mut given = Vec::new();
        for _ in 0..50 {
            given.push(client.get(None).await.unwrap().ticket);
        }
        for _ in 0..50 {
            let refused = client.get(None).await.unwrap_err();
            assert_eq!(refused.code(), Code::ResourceExhausted);
            assert!(refused.message().contains("tickets_max"), "{refused}");
        }
        assert_eq!(metric(&node, "sherwood_tickets_held{scheduler=\"default\"}"), 50.0);
        assert_eq!(metric(&node, "sherwood_queue_waiting{scheduler=\"default\"}"), 49.0);
        client.cancel(given[30]).await.unwrap();
        client.get(None).await.unwrap();
    });
    node.stop();
}

#[test]
fn turn_of_a_client_that_vanished_passes_on_with_its_lease() {
    let node = node("[[scheduler]]\ntimeout = \"2s\"");
    run(async {
        let mut vanishing = Client::of(source(&node, "default")).await;
        let held = vanishing.get(None).await.unwrap().ticket;
        vanishing.wait(held).await.unwrap();
        drop(vanishing);
        let mut client = Client::of(source(&node, "default")).await;
        let ticket = client.get(None).await.unwrap().ticket;
        client.wait(ticket).await.unwrap();
        client.release(ticket, Some(1)).await.unwrap();
        assert_eq!(code(client.release(held, Some(1)).await), Code::NotFound);
        assert_eq!(metric(&node, "sherwood_tickets_expired_total{scheduler=\"default\"}"), 1.0);
    });
    node.stop();
}

#[test]
fn ticket_of_a_cancelled_call_that_waits_is_cancelled() {
    let node = node("[[scheduler]]\ntimeout = \"10m\"");
    run(async {
        let mut client = Client::of(source(&node, "default")).await;
        let mut other = client.clone();
        let request = client.request(None);
        let held = client.calls.get_ticket_and_wait(request.clone()).await.unwrap().into_inner().ticket;
        let waits = tokio::spawn(async move { other.calls.get_ticket_and_wait(request).await });
        let waiting = || metric(&node, "sherwood_queue_waiting{scheduler=\"default\"}");
        eventually("the second call waits", || waiting() == 1.0).await;
        waits.abort();
        eventually("its ticket is cancelled", || waiting() == 0.0).await;
        // A wait that is cancelled leaves the ticket to its client.
        let ticket = client.get(None).await.unwrap().ticket;
        let mut other = client.clone();
        let waits = tokio::spawn(async move { other.wait(ticket).await });
        let mut third = client.clone();
        let later = tokio::spawn(async move { third.wait(ticket).await });
        // One of the two displaces the other, and the wait goes on.
        eventually("one call has ended", || waits.is_finished() || later.is_finished()).await;
        client.release(held, None).await.unwrap();
        let ends = [within(waits).await.unwrap(), within(later).await.unwrap()].map(code);
        assert!(ends.contains(&Code::Aborted) && ends.contains(&Code::Ok), "{ends:?}");
        client.release(ticket, None).await.unwrap();
    });
    node.stop();
}

#[test]
fn wait_ends_when_the_node_stops() {
    let node = node("[[scheduler]]\ntimeout = \"10m\"");
    run(async {
        let mut client = Client::of(source(&node, "default")).await;
        client.get(None).await.unwrap();
        let request = client.request(None);
        let waits = tokio::spawn(async move { client.calls.get_ticket_and_wait(request).await });
        eventually("it waits", || metric(&node, "sherwood_queue_waiting{scheduler=\"default\"}") == 1.0)
            .await;
        let stop = tokio::task::spawn_blocking(move || node.stop());
        assert_eq!(code(within(waits).await.unwrap()), Code::Unavailable);
        within(stop).await.unwrap();
    });
}

#[test]
fn call_needs_a_token_if_the_node_has_tokens() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let (token, read) = ("0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210");
    let (full, read) = (file("full", token), file("read", &format!("# a comment\n{read}\n")));
    let tables = format!(
        "[admin]\ntoken_file = {full:?}\nread_token_file = {read:?}\n[[scheduler]]\ntimeout = \"10m\"\n"
    );
    let node = node(&tables);
    run(async {
        for (token_file, expected) in
            [(None, Code::Unauthenticated), (Some(read), Code::PermissionDenied), (Some(full), Code::Ok)]
        {
            let source = SchedulerSource { token_file, ..source(&node, "default") };
            assert_eq!(code(Client::of(source).await.get(None).await), expected);
        }
    });
    node.stop();
}

#[test]
fn scheduler_is_served_over_tls_and_refused_without() {
    let directory = tempfile::tempdir().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certified = rcgen::generate_simple_self_signed(names).unwrap();
    let (cert, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    fs::write(&cert, certified.cert.pem()).unwrap();
    fs::write(&key, certified.signing_key.serialize_pem()).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let node = node(&format!("[admin]\ntls = {{ cert = {cert:?}, key = {key:?} }}\n[[scheduler]]\n"));
    run(async {
        let of = source(&node, "default");
        let trusted = TlsOptions { ca: Some(cert.clone()), ..TlsOptions::default() };
        let mut client = Client::of(SchedulerSource { tls: trusted, ..of.clone() }).await;
        client.get(None).await.unwrap();
        let plain = of.url.to_string().replace("https", "http").parse().unwrap();
        let plain = SchedulerSource { url: plain, ..of };
        assert_ne!(code(Client::of(plain).await.get(None).await), Code::Ok);
    });
    node.stop();
}

#[test]
fn other_paths_over_http2_are_not_served() {
    let node = node("[[scheduler]]\n");
    run(async {
        let codec = tonic_prost::ProstCodec::<GetTicketRequest, GetTicketRequest>::default();
        let endpoint = Endpoint::open(source(&node, "default")).expect("its files");
        let connection = endpoint.connect().await.expect("a connection");
        let mut calls = tonic::client::Grpc::with_origin(connection, endpoint.origin());
        calls.ready().await.unwrap();
        let path = "/v1/partitions".parse().unwrap();
        let answer = calls.unary(tonic::Request::new(GetTicketRequest::default()), path, codec).await;
        assert_eq!(code(answer), Code::Unimplemented);
    });
    node.stop();
}

#[test]
fn node_without_schedulers_speaks_no_http2() {
    let node = node("");
    run(async {
        let endpoint = Endpoint::open(source(&node, "default")).expect("its files");
        let Ok(connection) = endpoint.connect().await else { return };
        let mut calls = tonic::client::Grpc::with_origin(connection, endpoint.origin());
        if calls.ready().await.is_ok() {
            let codec = tonic_prost::ProstCodec::<GetTicketRequest, GetTicketRequest>::default();
            let path = "/sherwood.v1.Tickets/GetTicket".parse().unwrap();
            let answer = calls.unary(tonic::Request::new(GetTicketRequest::default()), path, codec).await;
            // The connection breaks; when the client notices decides which of the two it is.
            let code = code(answer);
            assert!(matches!(code, Code::Unknown | Code::Cancelled), "{code:?}");
        }
    });
    node.stop();
}
