//! Tests of HTTP and DynamoDB connectors with services whose answers are coded, malformed, or state
//! their freshness.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use sherwood_store::{HeaderValue, HttpOptions, RemoteOptions, Store, StoreOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::{dynamodb, keys, label, opened, patient, value};

/// A service that answers each request by its path, and keeps the heads of the requests.
struct Service {
    address: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Service {
    async fn new(answer: impl Fn(&str) -> Vec<u8> + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let kept = Arc::clone(&heads);
        // The tasks end with the runtime of the test.
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (answer, kept) = (answer.clone(), Arc::clone(&kept));
                tokio::spawn(async move {
                    while let Ok(head) = head(&mut stream).await {
                        let path = head.split(' ').nth(1).unwrap().to_owned();
                        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
                        stream.read_exact(&mut body).await.unwrap();
                        kept.lock().unwrap().push(head);
                        stream.write_all(&answer(&path)).await.unwrap();
                    }
                });
            }
        });
        Self { address, heads }
    }

    /// Returns options of a store that reads each key from the path with its name.
    fn http(&self) -> HttpOptions {
        let options = HttpOptions::new(format!("http://{}/{{key}}", self.address));
        HttpOptions { remote: patient(), ..options }
    }

    fn batch(&self) -> Arc<dyn Store> {
        opened(StoreOptions::Http(HttpOptions::new(format!("http://{}/{{keys}}", self.address))))
    }

    fn dynamodb(&self) -> Arc<dyn Store> {
        opened(StoreOptions::DynamoDb(dynamodb::options(&format!("http://{}", self.address))))
    }

    /// Returns the coding that the last request accepts.
    fn accepted(&self) -> Option<String> {
        let heads = self.heads.lock().unwrap();
        let accepted = heads.last()?.lines().find_map(|line| line.strip_prefix("accept-encoding: "));
        accepted.map(str::to_owned)
    }
}

/// Reads the head of a request, in lower case.
async fn head(stream: &mut tokio::net::TcpStream) -> std::io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?.to_ascii_lowercase());
    }
    Ok(String::from_utf8(head).unwrap())
}

fn answer(headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\n{headers}content-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

/// The result of each key of a call: its value, none, or the label of its error.
async fn each(store: &Arc<dyn Store>, names: &[&str]) -> Vec<Result<Option<Bytes>, &'static str>> {
    let each = store.get_each(keys(names)).await.unwrap().each.into_iter();
    each.map(|one| one.map(|found| found.map(|found| found.value)).map_err(|error| error.cause().label()))
        .collect()
}

#[tokio::test]
async fn accept_encoding_is_identity_unless_the_configured_headers_set_it() {
    let service = Service::new(|_| answer("", b"{}")).await;
    assert_eq!(value(&opened(StoreOptions::Http(service.http())), "k").await, Some("{}".into()));
    assert_eq!(service.accepted().as_deref(), Some("identity"));
    assert_eq!(value(&service.dynamodb(), "k").await, None);
    assert_eq!(service.accepted().as_deref(), Some("identity"));
    let mut options = service.http();
    options.headers.insert("Accept-Encoding".into(), HeaderValue::Text("br, gzip".into()));
    assert_eq!(value(&opened(StoreOptions::Http(options)), "k").await, Some("{}".into()));
    assert_eq!(service.accepted().as_deref(), Some("br, gzip"));
}

#[tokio::test]
async fn compressed_answer_is_decompressed() {
    let service = Service::new(|path| match path {
        "/transfer" => {
            let body = gzip(b"value");
            let head =
                format!("HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n{:x}\r\n", body.len());
            [head.as_bytes(), &body, b"\r\n0\r\n\r\n"].concat()
        }
        "/twice" => answer("Content-Encoding: gzip, X-GZip\r\n", &gzip(&gzip(b"value"))),
        "/none" => answer("content-encoding: identity\r\n", b"value"),
        _ => answer("content-encoding: GZIP\r\n", &gzip(b"value")),
    })
    .await;
    let store = opened(StoreOptions::Http(service.http()));
    for key in ["once", "twice", "transfer", "none"] {
        assert_eq!(value(&store, key).await, Some("value".into()), "{key}");
    }
    let table =
        Service::new(|_| answer("content-encoding: gzip\r\n", &gzip(br#"{"Item":{"value":{"B":"MQ=="}}}"#)))
            .await;
    assert_eq!(value(&table.dynamodb(), "k").await, Some("1".into()));
}

#[tokio::test]
async fn undecodable_answer_fails_its_key_with_an_error_that_names_the_coding() {
    let service = Service::new(|path| match path {
        "/plain" => answer("", b"value"),
        "/unknown" => answer("content-encoding: lz4\r\n", b"value"),
        "/cut" => answer("content-encoding: gzip\r\n", &gzip(b"value")[..20]),
        _ => answer("content-encoding: br\r\n", b"value"),
    })
    .await;
    let store = opened(StoreOptions::Http(service.http()));
    let found = each(&store, &["plain", "unknown", "cut", "wrong"]).await;
    assert_eq!(found, [Ok(Some("value".into())), Err("protocol"), Err("protocol"), Err("protocol")]);
    for (key, named) in [("unknown", "coding `lz4`"), ("cut", "coding gzip"), ("wrong", "coding br")] {
        let said = store.get_many(keys(&[key])).await.unwrap_err().to_string();
        assert!(said.contains(&format!("content {named}: ")), "{said}");
    }
    let said = store.check().await.unwrap_err().to_string();
    assert!(said.contains("content coding br: "), "{said}");
}

#[tokio::test]
async fn size_limits_of_values_apply_to_the_decoded_bytes() {
    let service = Service::new(|path| {
        let bytes = path[1..].parse().unwrap();
        let text: Vec<u8> = (0..bytes).map(|at: u32| at.to_le_bytes()[0]).collect();
        answer("content-encoding: gzip\r\n", &gzip(&text))
    })
    .await;
    let remote = RemoteOptions { value_bytes_max: 1 << 10, ..RemoteOptions::default() };
    let small = opened(StoreOptions::Http(HttpOptions { remote, ..service.http() }));
    assert_eq!(label(small.get_many(keys(&["1025"])).await), "too_large");
    assert_eq!(label(small.get_many(keys(&["600", "601"])).await), "too_large");
    assert_eq!(small.get_many(keys(&["1024"])).await.unwrap()[0].as_ref().unwrap().value.len(), 1024);
    let usual = opened(StoreOptions::Http(service.http()));
    assert_eq!(usual.get_many(keys(&["3000000"])).await.unwrap()[0].as_ref().unwrap().value.len(), 3_000_000);
}

#[tokio::test]
async fn malformed_value_of_an_http_batch_fails_only_its_own_key() {
    let service = Service::new(|_| {
        let body = b"\xef\xbb\xbf{\"a\": 18446744073709551616, \"b\": \"\\ud800\", \"c\": NaN, \"d\": null, \"e\": \"1\", \"f\": \"\xff\"}";
        answer("content-type: Application/JSON\r\n", body)
    })
    .await;
    let found = each(&service.batch(), &["a", "b", "c", "d", "e", "f", "g"]).await;
    let large = Ok(Some("18446744073709551616".into()));
    let wrong = Err("protocol");
    assert_eq!(found, [large, wrong.clone(), wrong.clone(), Ok(None), Ok(Some("1".into())), wrong, Ok(None)]);
    let none = Service::new(|_| answer("", b"<html>it works</html>")).await;
    assert_eq!(label(none.batch().get_each(keys(&["a", "b"])).await), "protocol");
}

#[tokio::test]
async fn malformed_dynamodb_item_fails_only_its_own_key() {
    let service = Service::new(|_| {
        let items = r#"{"key":{"S":"a"},"value":{"B":"MQ=="}},{"key":{"S":"b"},"value":{"B":7}}"#;
        answer("", format!(r#"{{"Responses":{{"orders":[{items}]}},"ConsumedCapacity":null}}"#).as_bytes())
    })
    .await;
    let found = each(&service.dynamodb(), &["a", "b", "c"]).await;
    assert_eq!(found, [Ok(Some("1".into())), Err("protocol"), Ok(None)]);
}

#[tokio::test]
async fn value_of_an_expired_or_varying_response_has_a_freshness_lifetime_of_zero() {
    let service = Service::new(|path| match path {
        "/expired" => answer("Expires: Thu, 01 Jan 1970 00:00:00 GMT\r\n", b"1"),
        "/invalid" => answer("expires: 0\r\n", b"1"),
        "/varies" => answer("cache-control: max-age=60\r\nvary: Accept, *\r\n", b"1"),
        "/pragma" => answer("pragma: no-cache\r\n", b"1"),
        "/later" => answer(
            "date: Sun, 06 Nov 1994 08:49:37 GMT\r\nexpires: Sun, 06 Nov 1994 08:50:37 GMT\r\nage: 15\r\n",
            b"1",
        ),
        _ => answer("vary: accept-encoding\r\n", b"1"),
    })
    .await;
    let store = opened(StoreOptions::Http(service.http()));
    let asked = ["expired", "invalid", "varies", "pragma", "later", "unstated"];
    let found = store.get_many(keys(&asked)).await.unwrap();
    let good_for: Vec<_> = found.into_iter().map(|found| found.unwrap().good_for).collect();
    let (none, zero) = (None, Some(Duration::ZERO));
    assert_eq!(good_for, [zero, zero, zero, zero, Some(Duration::from_secs(45)), none]);
}
