//! The connector to DynamoDB: a table whose items are a key and a value.
//!
//! `GetItem` reads one key, `BatchGetItem` more, 100 at a time. Requests are signed by
//! `aws-sigv4` and sent by the HTTP connector's client. The capacity that each answer reports is
//! added up, and that of reads is part of their answers.
//!
//! A throttled request is not sent again here: it would consume capacity that others wait for. Keys
//! that a batch left out are requested again only while answers are large enough that their size is
//! the reason; the other ones were throttled.

mod answer;
mod item;
mod options;
mod sign;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use aws_credential_types::Credentials;
use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::Full;
use hyper::header::{ACCEPT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use serde_json::Value;
use tokio::sync::Semaphore;

pub use options::{AwsCredentials, DynamoDbOptions, DynamoDbValue};

use answer::{Answer, Batch};
use item::{BATCH_KEYS_MAX, Table};
use sign::Signer;

use super::http::{Budget, Client, Effect, host, settled};
use super::options::RemoteOptions;
use super::{CHECK_KEY, Each, all, named_each, tls};
use crate::{
    Attempt, BoxFuture, Cause, ConsumedUnits, Found, KeyAnswers, OpenCause, Report, Store, StoreError,
    StoreKind,
};

/// Bytes of an answer from which on the keys that it left out are requested again at once.
///
/// DynamoDB ends a batch before it exceeds 16 MiB, or 1 MiB of one partition, and no item has more
/// than 400 KiB. A shorter answer that left out keys was throttled.
const FULL_ANSWER_BYTES: usize = 512 << 10;

/// Bytes of an answer that are not values: names, and the keys of up to a hundred items.
const ANSWER_BYTES_BESIDE_VALUES: u64 = 1 << 20;

/// The store of a DynamoDB table.
pub(crate) struct DynamoDb {
    name: Arc<str>,
    table: Table,
    region: String,
    url: Uri,
    client: Client,
    signer: Signer,
    requests: Semaphore,
    calls: Semaphore,
    remote: RemoteOptions,
    consumed: Mutex<ConsumedUnits>,
}

impl DynamoDb {
    pub(crate) fn open(name: &str, options: &DynamoDbOptions) -> Result<Self, OpenCause> {
        options.validate()?;
        let DynamoDbOptions { region, credentials, remote, .. } = options;
        let url = options.url()?;
        Ok(Self {
            name: name.into(),
            table: Table::new(options),
            region: region.clone(),
            client: Client::open(url.scheme_str() == Some("https"), remote)?,
            url,
            signer: Signer::open(credentials, region)?,
            requests: Semaphore::new(remote.connections_max.into()),
            calls: Semaphore::new(remote.queued_calls_max as usize),
            remote: remote.clone(),
            consumed: Mutex::default(),
        })
    }

    /// Reads `keys`; returns the result of each, and the capacity units of all, if they are known.
    async fn read(&self, keys: &[Bytes]) -> Result<(Vec<Each>, Option<f64>), Cause> {
        let _room = self.room()?;
        if keys.is_empty() {
            let (_, units) = self.read_one(CHECK_KEY, &self.budget()).await?;
            return Ok((Vec::new(), units));
        }
        // A key that no item can have is absent.
        let texts: Vec<Option<&str>> = keys.iter().map(|key| Table::key(key)).collect();
        // A batch must not have a key twice.
        let asked: BTreeSet<&str> = texts.iter().flatten().copied().collect();
        let asked: Vec<&str> = asked.into_iter().collect();
        let budget = self.budget();
        let batches = asked.chunks(BATCH_KEYS_MAX).map(|keys| self.read_batch(keys, &budget));
        let (mut found, mut units) = (Results::new(), None);
        for (each, consumed) in join_all(batches).await {
            found.extend(each);
            units = sum(units, consumed);
        }
        let each = texts.iter().map(|text| text.and_then(|text| found.get(text).cloned()));
        Ok((self.within_bounds(settled(each.collect())?), units))
    }

    /// Reads at most [`BATCH_KEYS_MAX`] different keys; returns the result of each.
    async fn read_batch<'a>(&self, keys: &[&'a str], budget: &Budget) -> (Results<'a>, Option<f64>) {
        if let [key] = keys {
            let (each, units) = self.read_one(key, budget).await.unwrap_or_else(|cause| (Err(cause), None));
            return (Results::from([(*key, each)]), units);
        }
        let (mut found, mut units, mut rest) = (Results::new(), None, keys.to_vec());
        // Each further round has fewer keys than the one before.
        let cause = loop {
            let (batch, answer_bytes) = match self.read_several(&rest, budget).await {
                Ok(answer) => answer,
                Err(cause) => break cause,
            };
            units = sum(units, batch.units);
            let asked = rest.len();
            batch.take(&mut rest, &mut found);
            if rest.is_empty() {
                return (found, units);
            }
            if rest.len() == asked || answer_bytes < FULL_ANSWER_BYTES {
                break Cause::Throttled { detail: format!("{} of {asked} keys were left out", rest.len()) };
            }
        };
        found.extend(rest.into_iter().map(|key| (key, Err(cause.clone()))));
        (found, units)
    }

    async fn read_one(&self, key: &str, budget: &Budget) -> Result<(Each, Option<f64>), Cause> {
        let (status, body) = self.request(Effect::Read, "GetItem", &self.table.get(key), budget).await?;
        let (each, units) = self.answer(status, &body).item(&self.table)?;
        self.count(ConsumedUnits { reads: units.unwrap_or_default(), writes: 0.0 });
        Ok((each, units))
    }

    /// Reads a batch once; returns it with the length of its answer.
    async fn read_several(&self, keys: &[&str], budget: &Budget) -> Result<(Batch, usize), Cause> {
        let request = self.table.batch(keys);
        let (status, body) = self.request(Effect::Read, "BatchGetItem", &request, budget).await?;
        let batch = self.answer(status, &body).batch(&self.table)?;
        self.count(ConsumedUnits { reads: batch.units.unwrap_or_default(), writes: 0.0 });
        Ok((batch, body.len()))
    }

    async fn put_one(&self, key: &[u8], value: &[u8]) -> Result<(), Cause> {
        let value_bytes_max = usize::try_from(self.remote.value_bytes_max).unwrap_or(usize::MAX);
        self.change("PutItem", &self.table.put(key, value, value_bytes_max)?).await
    }

    async fn delete_one(&self, key: &[u8]) -> Result<(), Cause> {
        self.change("DeleteItem", &self.table.delete(Table::written_key(key)?)).await
    }

    /// Sends a write or removal.
    async fn change(&self, operation: &'static str, request: &Value) -> Result<(), Cause> {
        let _room = self.room()?;
        let budget = Budget::new(ANSWER_BYTES_BESIDE_VALUES);
        let (status, body) = self.request(Effect::Write, operation, request, &budget).await?;
        let units = self.answer(status, &body).written()?;
        self.count(ConsumedUnits { reads: 0.0, writes: units.unwrap_or_default() });
        Ok(())
    }

    /// Checks the table by reading a key, which need not exist.
    async fn report(&self) -> Result<Report, Cause> {
        let (each, units) = self.read_one(CHECK_KEY, &self.budget()).await?;
        let found = if each?.is_some() { "present" } else { "absent" };
        let units = units.map(|units| format!(", {units} read units")).unwrap_or_default();
        let security = match self.url.scheme_str() {
            Some("https") => format!("TLS, {}", tls::trust(&self.remote.tls.clone().unwrap_or_default())),
            _ => "no TLS".to_owned(),
        };
        let details = vec![
            format!("{}, {security}", host(&self.url)),
            format!("table {}, the key {CHECK_KEY} is {found}{units}", self.table.name),
        ];
        Ok(Report { server: format!("DynamoDB, region {}", self.region), details })
    }

    /// Sends a request once it has a permit, and reads the response. If the service refuses the
    /// credentials and their files have changed, sends the request once more with the new ones.
    async fn request(
        &self,
        effect: Effect,
        operation: &'static str,
        request: &Value,
        budget: &Budget,
    ) -> Result<(StatusCode, Bytes), Cause> {
        let body = Bytes::from(request.to_string());
        let _permit = self.requests.acquire().await.map_err(|_| Cause::Closed)?;
        let credentials = self.signer.current();
        let (status, answer) = self.send(effect, operation, &body, &credentials, budget).await?;
        if self.answer(status, &answer).refuses_credentials()
            && let Some(newer) = self.signer.newer_than(&credentials)
        {
            return self.send(effect, operation, &body, &newer, budget).await;
        }
        Ok((status, answer))
    }

    async fn send(
        &self,
        effect: Effect,
        operation: &'static str,
        body: &Bytes,
        credentials: &Credentials,
        budget: &Budget,
    ) -> Result<(StatusCode, Bytes), Cause> {
        let request = || self.signed(operation, body, credentials);
        let (head, body) = self.client.send(effect, request).await?.into_parts();
        let body = self.client.body(&head.headers, body, &host(&self.url), budget).await?;
        Ok((head.status, body))
    }

    /// Makes a request of `operation`. Its signature has the time of this call.
    fn signed(
        &self,
        operation: &str,
        body: &Bytes,
        credentials: &Credentials,
    ) -> Result<Request<Full<Bytes>>, Cause> {
        let mut request = Request::post(self.url.clone()).body(Full::new(body.clone())).expect("a valid URL");
        let target = HeaderValue::from_str(&format!("{TARGET_PREFIX}{operation}")).expect("plain text");
        request.headers_mut().extend([
            (CONTENT_TYPE, HeaderValue::from_static("application/x-amz-json-1.0")),
            (HeaderName::from_static("x-amz-target"), target),
        ]);
        self.signer.sign(credentials, &mut request, body, SystemTime::now())?;
        request.headers_mut().extend([
            (USER_AGENT, HeaderValue::from_static("sherwood")),
            (ACCEPT_ENCODING, HeaderValue::from_static("identity")),
        ]);
        Ok(request)
    }

    fn answer<'a>(&'a self, status: StatusCode, body: &'a [u8]) -> Answer<'a> {
        Answer { status, body, address: host(&self.url) }
    }

    /// The bytes of answers that one call may read. Values are longer in them: as base64, or
    /// escaped.
    fn budget(&self) -> Budget {
        Budget::new(2 * self.remote.value_bytes_max + ANSWER_BYTES_BESIDE_VALUES)
    }

    /// Replaces the values with which the values of a call exceed their bound.
    fn within_bounds(&self, mut each: Vec<Each>) -> Vec<Each> {
        let bytes_max = self.remote.value_bytes_max;
        let mut left = bytes_max;
        for one in &mut each {
            let Ok(Some(found)) = one else { continue };
            match left.checked_sub(found.value.len() as u64) {
                Some(rest) => left = rest,
                None => *one = Err(Cause::TooLarge { bytes_max }),
            }
        }
        each
    }

    fn room(&self) -> Result<tokio::sync::SemaphorePermit<'_>, Cause> {
        let queued_calls_max = self.remote.queued_calls_max as usize;
        self.calls.try_acquire().map_err(|_| Cause::Overloaded { queued_calls_max })
    }

    fn count(&self, ConsumedUnits { reads, writes }: ConsumedUnits) {
        let mut consumed = self.consumed.lock().expect("no panics while held");
        consumed.reads += reads;
        consumed.writes += writes;
    }

    fn named<T>(&self, attempt: Attempt, result: Result<T, Cause>) -> Result<T, StoreError> {
        result.map_err(|cause| StoreError::new(Arc::clone(&self.name), StoreKind::DynamoDb, attempt, cause))
    }
}

impl Store for DynamoDb {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> StoreKind {
        StoreKind::DynamoDb
    }

    fn get_many(&self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<Vec<Option<Found>>, StoreError>> {
        let attempt = Attempt::Get { keys: keys.len() };
        Box::pin(async move { self.named(attempt, self.read(&keys).await.and_then(|(each, _)| all(each))) })
    }

    fn get_each(&self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<KeyAnswers, StoreError>> {
        let attempt = Attempt::Get { keys: keys.len() };
        Box::pin(async move {
            let (each, units) = self.named(attempt, self.read(&keys).await)?;
            Ok(KeyAnswers { units, ..named_each(&self.name, StoreKind::DynamoDb, each) })
        })
    }

    fn put(&self, key: Bytes, value: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move { self.named(Attempt::Put, self.put_one(&key, &value).await) })
    }

    fn delete(&self, key: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move { self.named(Attempt::Delete, self.delete_one(&key).await) })
    }

    fn consumed_units(&self) -> Option<ConsumedUnits> {
        Some(*self.consumed.lock().expect("no panics while held"))
    }

    fn check(&self) -> BoxFuture<'_, Result<Report, StoreError>> {
        Box::pin(async move { self.named(Attempt::Check, self.report().await) })
    }
}

/// Results of keys.
type Results<'a> = BTreeMap<&'a str, Each>;

/// Version of the API, before the name of an operation.
const TARGET_PREFIX: &str = "DynamoDB_20120810.";

/// The sum of two counts of units, of which either may be unknown.
fn sum(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one + other),
        (known, None) | (None, known) => known,
    }
}
