//! Tests of the DynamoDB connector: with dynalite, which has DynamoDB's API and reports capacity as
//! DynamoDB does, and with a service that refuses requests as DynamoDB may.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use sherwood_store::{
    AwsCredentials, ConsumedUnits, DynamoDbOptions, DynamoDbValue, Fault, RemoteOptions, Secret, Store,
    StoreOptions,
};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::certificates::Authority;
use crate::servers::Server;
use crate::{
    dropped_calls_do_not_affect_others, failure, gate, keys, label, lengths, opened, patient, value, values,
};

/// Options of a store of the table `orders` at `endpoint`, with credentials that only a server
/// accepts that does not verify signatures.
pub(crate) fn options(endpoint: &str) -> DynamoDbOptions {
    // Any variable that is set; cargo sets this one.
    let any = || Secret::Env("CARGO_PKG_NAME".to_owned());
    let credentials = AwsCredentials { access_key_id: any(), secret_access_key: any(), session_token: None };
    DynamoDbOptions {
        endpoint: Some(endpoint.to_owned()),
        credentials,
        ..DynamoDbOptions::new("orders", "eu-central-1")
    }
}

fn open(options: DynamoDbOptions) -> Arc<dyn Store> {
    opened(StoreOptions::DynamoDb(options))
}

/// A server with a table `orders` whose partition key is the string `key`.
struct Table {
    server: Server,
    endpoint: String,
}

impl Table {
    async fn new() -> Self {
        let server = Server::dynalite();
        let endpoint = format!("http://{}", server.address());
        let table = Self { server, endpoint };
        table.create().await;
        table
    }

    async fn create(&self) {
        let table = json!({
            "TableName": "orders",
            "AttributeDefinitions": [{ "AttributeName": "key", "AttributeType": "S" }],
            "KeySchema": [{ "AttributeName": "key", "KeyType": "HASH" }],
            "BillingMode": "PAY_PER_REQUEST",
        });
        self.send("CreateTable", &table).await;
        let one = json!({ "TableName": "orders" });
        while self.send("DescribeTable", &one).await["Table"]["TableStatus"] != "ACTIVE" {}
    }

    /// Sends an operation that the connector lacks. dynalite does not verify signatures.
    async fn send(&self, operation: &str, body: &Value) -> Value {
        let request = Request::post(&self.endpoint)
            .header("x-amz-target", format!("DynamoDB_20120810.{operation}"))
            .header("content-type", "application/x-amz-json-1.0")
            .header("x-amz-date", "20261125T000000Z")
            .header("authorization", "AWS4-HMAC-SHA256 Credential=k/20261125/eu-central-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0")
            .body(Full::new(Bytes::from(body.to_string())))
            .unwrap();
        let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let answer = client.request(request).await.unwrap();
        let (status, body) = (answer.status(), answer.into_body().collect().await.unwrap().to_bytes());
        assert_eq!(status, 200, "{operation}: {body:?}");
        serde_json::from_slice(&body).unwrap()
    }

    fn options(&self) -> DynamoDbOptions {
        options(&self.endpoint)
    }
}

/// The units of a read of `asked`.
async fn units(store: &Arc<dyn Store>, asked: &[&str]) -> Option<f64> {
    store.get_each(keys(asked)).await.unwrap().units
}

#[tokio::test]
async fn item_written_to_dynamodb_is_read_and_deleted_item_is_absent() {
    let table = Table::new().await;
    let store = open(table.options());
    assert_eq!(values(&store, &["a", "b"]).await, [None, None]);
    store.put("a".into(), "1".into()).await.unwrap();
    store.put("b".into(), "2".into()).await.unwrap();
    store.put("a".into(), "3".into()).await.unwrap();
    let binary = Bytes::from_static(b"\x00\xff\"");
    store.put("ключ \"x\"".into(), binary.clone()).await.unwrap();
    store.put("empty".into(), Bytes::new()).await.unwrap();
    let expected =
        [Some("2".to_owned()), None, Some("3".into()), None, Some("3".into()), Some(String::new())];
    assert_eq!(values(&store, &["b", "", "a", "absent", "a", "empty"]).await, expected);
    assert_eq!(store.get_many(keys(&["ключ \"x\""])).await.unwrap()[0].as_ref().unwrap().value, binary);
    store.delete("a".into()).await.unwrap();
    store.delete("a".into()).await.unwrap();
    assert_eq!(values(&store, &["a"]).await, [None]);
    let no_text = Bytes::from_static(b"\xff");
    assert_eq!(store.get_many(vec![no_text.clone()]).await.unwrap(), [None]);
    assert_eq!(label(store.put(no_text, "1".into()).await), "unsupported");
    assert_eq!(label(store.put("k".repeat(2_049).into(), "1".into()).await), "refused");
    assert!(store.answers_as_written());
}

#[tokio::test]
async fn capacity_of_an_answer_is_reported_with_it_and_in_total() {
    let table = Table::new().await;
    let store = open(table.options());
    let consistent = open(DynamoDbOptions { consistent: true, ..table.options() });
    store.put("large".into(), vec![b'x'; 5_000].into()).await.unwrap();
    store.put("small".into(), "1".into()).await.unwrap();
    assert_eq!(store.consumed_units(), Some(ConsumedUnits { reads: 0.0, writes: 5.0 + 1.0 }));
    assert_eq!(units(&store, &["small"]).await, Some(0.5));
    assert_eq!(units(&store, &["absent"]).await, Some(0.5));
    assert_eq!(units(&store, &["large", "small", "absent"]).await, Some(1.0 + 0.5 + 0.5));
    assert_eq!(units(&consistent, &["large", "small", "absent"]).await, Some(2.0 + 1.0 + 1.0));
    assert_eq!(units(&store, &[""]).await, None, "no item can have this key");
    assert_eq!(store.consumed_units().unwrap().reads, 3.0);
    store.delete("large".into()).await.unwrap();
    assert_eq!(store.consumed_units().unwrap().writes, 6.0 + 5.0);
}

#[tokio::test]
async fn many_keys_are_read_in_batches_of_a_hundred() {
    let table = Table::new().await;
    let store = open(table.options());
    let names: Vec<String> = (0..250).map(|n| format!("k{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for &name in names.iter().step_by(10) {
        store.put(name.to_owned().into(), name.to_owned().into()).await.unwrap();
    }
    let answers = store.get_each(keys(&names)).await.unwrap();
    for (n, (name, answer)) in names.iter().zip(&answers.each).enumerate() {
        let found = answer.as_ref().unwrap().as_ref().map(|found| found.value.clone());
        assert_eq!(found, (n % 10 == 0).then(|| Bytes::copy_from_slice(name.as_bytes())));
    }
    assert_eq!(answers.units, Some(125.0));
}

#[tokio::test]
async fn batch_that_exceeds_an_answer_is_requested_in_parts() {
    let table = Table::new().await;
    let store = open(DynamoDbOptions { remote: patient(), ..table.options() });
    // More than the 1 MiB that an answer has of one partition.
    let names: Vec<String> = (0..7).map(|n| format!("k{n}")).collect();
    for name in &names {
        store.put(name.clone().into(), vec![b'x'; 400_000].into()).await.unwrap();
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let answers = store.get_each(keys(&names)).await.unwrap();
    assert_eq!(lengths(&answers.each), [Ok(400_000); 7]);
    // Half a unit for each 4 KiB; dynalite also counts keys that it leaves out.
    assert!(answers.units.unwrap() >= 7.0 * 98.0 / 2.0, "{:?}", answers.units);
    let remote = RemoteOptions { value_bytes_max: 500_000, ..patient() };
    let small = open(DynamoDbOptions { remote, ..table.options() });
    let each = small.get_each(keys(&["k0", "absent", "k1"])).await.unwrap().each;
    assert_eq!(lengths(&each), [Ok(400_000), Err("none"), Err("too_large")]);
    let refused = store.put("k".into(), vec![b'x'; 400 << 10].into()).await.unwrap_err();
    assert_eq!(refused.cause().label(), "refused");
    assert!(refused.to_string().contains("has 409600 bytes, where 0 to 409591 are accepted"), "{refused}");
}

#[tokio::test]
async fn errors_of_a_table_say_what_does_not_fit() {
    let table = Table::new().await;
    let wrong = |change: fn(&mut DynamoDbOptions)| {
        let mut options = table.options();
        change(&mut options);
        open(options)
    };
    open(table.options()).put("k".into(), "1".into()).await.unwrap();
    for (store, expected) in [
        (wrong(|options| options.table = "missing".into()), "missing"),
        (wrong(|options| options.key_attribute = "id".into()), "statement"),
        (wrong(|options| options.value_attribute = "body".into()), "statement"),
        (wrong(|options| options.value = DynamoDbValue::String), "statement"),
    ] {
        assert_eq!(failure(&store).await, expected);
        let both = store.get_many(keys(&["k", "l"])).await.unwrap_err();
        assert_eq!((both.cause().label(), both.fault()), (expected, Fault::Rejected), "{both}");
    }
    let missing = wrong(|options| options.table = "missing".into());
    let said = missing.check().await.unwrap_err().to_string();
    assert!(
        said.contains("the table is missing") && said.contains("correct the backend's `table`"),
        "{said}"
    );
    let words =
        wrong(|options| (options.value, options.value_attribute) = (DynamoDbValue::String, "size".into()));
    words.put("text".into(), "ü".into()).await.unwrap();
    assert_eq!(value(&words, "text").await, Some("ü".into()));
    assert_eq!(label(words.put("text".into(), Bytes::from_static(b"\xff")).await), "unsupported");
}

#[tokio::test]
async fn check_of_a_table_names_region_endpoint_and_table() {
    let authority = Authority::new();
    let table = Table::new().await;
    let proxy = gate::before(table.server.port, authority.server("127.0.0.1", false, &[])).await;
    let remote = RemoteOptions { tls: Some(authority.trusted()), ..RemoteOptions::default() };
    let secure = open(DynamoDbOptions { remote, ..options(&format!("https://{proxy}")) });
    let report = secure.check().await.unwrap();
    assert_eq!(report.server, "DynamoDB, region eu-central-1");
    assert!(report.details[0].contains(&format!("{proxy}, TLS, trusted by")), "{report:?}");
    let expected = "table orders, the key sherwood-check is absent, 0.5 read units";
    assert_eq!(report.details[1], expected);
    let plain = open(table.options()).check().await.unwrap();
    assert_eq!(plain.details[0], format!("{}, no TLS", table.server.address()));
}

#[tokio::test]
async fn dynamodb_is_used_again_after_its_restart_and_dropped_calls_affect_no_others() {
    let mut table = Table::new().await;
    let store = open(table.options());
    dropped_calls_do_not_affect_others(&store).await;
    table.server.kill();
    let cause = failure(&store).await;
    assert!(["unreachable", "reset"].contains(&cause), "{cause}");
    assert_eq!(failure(&store).await, "unreachable");
    table.server.restart();
    table.create().await;
    assert_eq!(value(&store, "k").await, None);
}

/// A service that answers each request, by its operation and body, with a status and a body.
struct Service {
    endpoint: String,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
    headers: Arc<Mutex<hyper::HeaderMap>>,
}

impl Service {
    async fn new(answer: impl Fn(&str, &Value) -> (u16, Value) + Send + Sync + 'static) -> Self {
        Self::saying(move |operation, body| {
            let (status, body) = answer(operation, body);
            (status, body.to_string())
        })
        .await
    }

    async fn saying(answer: impl Fn(&str, &Value) -> (u16, String) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (requests, headers) = (Arc::new(Mutex::default()), Arc::new(Mutex::default()));
        let service = Self { endpoint, requests: Arc::clone(&requests), headers: Arc::clone(&headers) };
        let answer = Arc::new(answer);
        // The task ends with the runtime of the test.
        tokio::spawn(async move {
            let mut conversations = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, requests, headers) =
                    (Arc::clone(&answer), Arc::clone(&requests), Arc::clone(&headers));
                let service = service_fn(move |request: Request<Incoming>| {
                    let (answer, requests, headers) =
                        (Arc::clone(&answer), Arc::clone(&requests), Arc::clone(&headers));
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await.unwrap().to_bytes();
                        let body: Value = serde_json::from_slice(&body).unwrap();
                        let target = head.headers["x-amz-target"].to_str().unwrap();
                        let operation = target.strip_prefix("DynamoDB_20120810.").unwrap().to_owned();
                        let (status, said) = answer(&operation, &body);
                        requests.lock().unwrap().push((operation, body));
                        *headers.lock().unwrap() = head.headers;
                        let response = Response::builder().status(status).body(Full::new(Bytes::from(said)));
                        Ok::<_, Infallible>(response.unwrap())
                    }
                });
                let http1 = hyper::server::conn::http1::Builder::new();
                conversations.spawn(http1.serve_connection(TokioIo::new(stream), service));
            }
        });
        service
    }

    fn store(&self) -> Arc<dyn Store> {
        open(options(&self.endpoint))
    }

    fn sent(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

fn refusal(name: &str, message: &str) -> Value {
    json!({ "__type": format!("com.amazonaws.dynamodb.v20120810#{name}"), "message": message })
}

#[tokio::test]
async fn throttled_request_is_a_fault_of_its_own_and_is_not_sent_again() {
    let message = "The level of configured provisioned throughput for the table was exceeded.";
    let service =
        Service::new(move |_, _| (400, refusal("ProvisionedThroughputExceededException", message))).await;
    let store = service.store();
    for (sent, error) in [
        (1, store.get_many(keys(&["a"])).await.map(drop)),
        (2, store.get_many(keys(&["a", "b"])).await.map(drop)),
        (3, store.put("a".into(), "1".into()).await),
        (4, store.delete("a".into()).await),
    ] {
        let error = error.unwrap_err();
        assert_eq!((error.cause().label(), error.fault()), ("throttled", Fault::Throttled));
        assert!(
            error.to_string().contains("its capacity is used up (ProvisionedThroughputExceededException")
        );
        assert!(error.to_string().contains("raise the capacity of the table"), "{error}");
        assert!(service.sent() >= sent);
    }
    assert_eq!(service.sent(), 4);
    assert_eq!(store.consumed_units(), Some(ConsumedUnits::default()));
}

#[tokio::test]
async fn keys_left_out_of_a_small_answer_were_throttled() {
    let service = Service::new(|_, _| {
        let answer = json!({
            "Responses": { "orders": [{ "key": { "S": "a" }, "value": { "B": "MQ==" } }] },
            "UnprocessedKeys": { "orders": { "Keys": [{ "key": { "S": "b" } }] } },
            "ConsumedCapacity": [{ "TableName": "orders", "CapacityUnits": 1.0 }],
        });
        (200, answer)
    })
    .await;
    let store = service.store();
    let answers = store.get_each(keys(&["a", "b", "c"])).await.unwrap();
    assert_eq!(lengths(&answers.each), [Ok(1), Err("throttled"), Err("none")]);
    assert_eq!((answers.units, service.sent()), (Some(1.0), 1));
}

#[tokio::test]
async fn answer_that_reads_nothing_ends_the_call() {
    let service = Service::new(|_, body| {
        let rest = &body["RequestItems"]["orders"];
        // Long enough to be requested again, if that could help.
        let padding = "x".repeat(2 << 20);
        (200, json!({ "Responses": {}, "UnprocessedKeys": { "orders": rest }, "padding": padding }))
    })
    .await;
    assert_eq!(label(service.store().get_many(keys(&["a", "b"])).await), "throttled");
    assert_eq!(service.sent(), 1);
}

#[tokio::test]
async fn refused_credentials_and_clock_are_errors_with_their_remedy() {
    for (name, message, expected) in [
        (
            "UnrecognizedClientException",
            "The security token included in the request is invalid.",
            "`credentials`",
        ),
        (
            "InvalidSignatureException",
            "Signature expired: 20261125T040000Z is now earlier",
            "this machine's clock",
        ),
        ("ExpiredTokenException", "The security token is expired", "`credentials`"),
        ("AccessDeniedException", "User: u is not authorized to perform: dynamodb:GetItem", "(IAM)"),
    ] {
        let service = Service::new(move |_, _| (400, refusal(name, message))).await;
        for error in [
            service.store().check().await.map(drop).unwrap_err(),
            service.store().put("k".into(), "1".into()).await.unwrap_err(),
        ] {
            assert_eq!(error.cause().label(), "credentials");
            let said = error.to_string();
            assert!(said.contains(name) && said.contains(message) && said.contains(expected), "{said}");
        }
    }
}

#[tokio::test]
async fn answer_that_is_not_from_dynamodb_is_an_error_of_cause_protocol() {
    for (status, body) in [
        (200, "<html>it works</html>".to_owned()),
        (404, "<html>no such page</html>".to_owned()),
        (200, "{\"Responses\": 1}".to_owned()),
        (302, String::new()),
    ] {
        let service = Service::saying(move |_, _| (status, body.clone())).await;
        let error = service.store().get_many(keys(&["a", "b"])).await.unwrap_err();
        assert_eq!(error.cause().label(), "protocol", "{error}");
        assert!(
            error.to_string().contains("see whether the backend's `endpoint` leads to DynamoDB"),
            "{error}"
        );
    }
    let service = Service::saying(|_, _| (500, refusal("InternalServerError", "").to_string())).await;
    assert_eq!(service.store().put("k".into(), "1".into()).await.unwrap_err().fault(), Fault::Broken);
}

#[tokio::test]
async fn oversized_answer_is_not_read_completely() {
    let service = Service::saying(|_, _| (200, " ".repeat(2 << 20))).await;
    let remote = RemoteOptions { value_bytes_max: 1 << 10, ..RemoteOptions::default() };
    let store = open(DynamoDbOptions { remote, ..options(&service.endpoint) });
    assert_eq!(failure(&store).await, "too_large");
    assert_eq!(label(store.get_many(keys(&["a", "b"])).await), "too_large");
}

#[tokio::test]
async fn request_whose_credentials_are_refused_is_signed_again_with_new_ones() {
    let requests = Arc::new(AtomicUsize::new(0));
    let service = {
        let requests = Arc::clone(&requests);
        Service::new(move |_, _| match requests.fetch_add(1, Ordering::Relaxed) {
            0 | 2 => (400, refusal("ExpiredTokenException", "")),
            _ => (200, json!({})),
        })
        .await
    };
    let folder = tempfile::tempdir().unwrap();
    let id = folder.path().join("id");
    std::fs::write(&id, "OLD").unwrap();
    let credentials = AwsCredentials { access_key_id: Secret::File(id.clone()), ..options("").credentials };
    let store = open(DynamoDbOptions { credentials, ..options(&service.endpoint) });
    std::fs::write(&id, "\u{feff}NEW\r\n").unwrap();
    let used = || {
        let headers = service.headers.lock().unwrap();
        let authorization = headers["authorization"].to_str().unwrap();
        authorization.strip_prefix("AWS4-HMAC-SHA256 Credential=").unwrap()[..3].to_owned()
    };
    assert_eq!((value(&store, "k").await, used()), (None, "NEW".into()));
    assert_eq!(requests.load(Ordering::Relaxed), 2);
    // There are no others.
    assert_eq!((failure(&store).await, used()), ("credentials", "NEW".into()));
    assert_eq!(requests.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn session_token_is_sent_signed_and_not_shown() {
    let service = Service::new(|_, _| (200, json!({}))).await;
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).unwrap();
        Secret::File(folder.path().join(name))
    };
    let credentials = AwsCredentials {
        access_key_id: file("id", "AKID"),
        secret_access_key: file("secret", "sesame"),
        session_token: Some(file("token", "tulip")),
    };
    let store = open(DynamoDbOptions { credentials, ..options(&service.endpoint) });
    assert_eq!(value(&store, "k").await, None);
    let headers = service.headers.lock().unwrap().clone();
    assert_eq!(headers["x-amz-security-token"], "tulip");
    let authorization = headers["authorization"].to_str().unwrap();
    assert!(authorization.starts_with("AWS4-HMAC-SHA256 Credential=AKID/"), "{authorization}");
    assert!(authorization.contains("/eu-central-1/dynamodb/aws4_request"), "{authorization}");
    let signed = "SignedHeaders=content-type;host;x-amz-date;x-amz-security-token;x-amz-target";
    assert!(authorization.contains(signed), "{authorization}");
    assert_eq!(headers["host"], service.endpoint.strip_prefix("http://").unwrap());
    let absent =
        AwsCredentials { session_token: Some(Secret::File("/absent".into())), ..options("").credentials };
    let Err(refused) = sherwood_store::open(
        "b",
        &StoreOptions::DynamoDb(DynamoDbOptions { credentials: absent, ..options(&service.endpoint) }),
    ) else {
        panic!("it cannot be read")
    };
    assert!(refused.to_string().contains("`credentials.session_token` cannot be used (/absent"), "{refused}");
}
