//! Answers of DynamoDB, from JSON; pure.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::StatusCode;
use serde::Deserialize;

use super::item::Table;
use super::options::DynamoDbValue;
use crate::remote::{Each, json};
use crate::{Cause, Found};

/// An answer of DynamoDB: the status and the body of a response.
pub(super) struct Answer<'a> {
    pub(super) status: StatusCode,
    pub(super) body: &'a [u8],
    /// Host and port of the server, for errors.
    pub(super) address: String,
}

/// The kind of an operation, which decides what an unclear failure means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Read,
    /// A write or a removal, which a failed server may have done or not.
    Write,
}

/// The result of one batch.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Results of the items that exist, by key.
    pub(super) items: BTreeMap<String, Each>,
    /// Keys that were not read.
    pub(super) unprocessed: Vec<String>,
    /// The problem of an item whose key cannot be read, so that it may be the item of any requested
    /// key.
    pub(super) unreadable: Option<Cause>,
    /// Capacity units consumed; none if the answer does not say.
    pub(super) units: Option<f64>,
}

impl Batch {
    /// Moves the results of the keys that were read from `rest` to `found`. A key that has no item
    /// and is not unprocessed is absent, unless the key of some item is unreadable.
    pub(super) fn take<'a>(mut self, rest: &mut Vec<&'a str>, found: &mut BTreeMap<&'a str, Each>) {
        let unprocessed: BTreeSet<&str> = self.unprocessed.iter().map(String::as_str).collect();
        rest.retain(|&key| {
            let item = self.items.remove(key);
            let is_left = item.is_none() && unprocessed.contains(key);
            if !is_left {
                let other = || self.unreadable.clone().map_or(Ok(None), Err);
                found.insert(key, item.unwrap_or_else(other));
            }
            is_left
        });
    }
}

impl Answer<'_> {
    /// Reads the answer to a read of one key.
    pub(super) fn item(&self, table: &Table) -> Result<(Each, Option<f64>), Cause> {
        let [item, consumed] = self.read(["Item", "ConsumedCapacity"])?;
        let value = |item| self.value(self.find(item, [&table.value_attribute])?[0], table);
        Ok((item.map(value).transpose(), units(consumed)))
    }

    /// Reads the answer to a read of several keys. A malformed part of an item is an error of its
    /// key only.
    pub(super) fn batch(&self, table: &Table) -> Result<Batch, Cause> {
        let [items, unprocessed, consumed] =
            self.read(["Responses", "UnprocessedKeys", "ConsumedCapacity"])?;
        let mut batch = Batch { units: units(consumed), ..Batch::default() };
        let items = items.ok_or_else(|| self.protocol("it has no `Responses`".to_owned()))?;
        // One table was asked, whose name may be answered as another form of it.
        for of_table in json::members(items) {
            for item in json::elements(self.part(of_table)?.value()) {
                self.add_item(self.part(item)?, table, &mut batch);
            }
        }
        for of_table in unprocessed.into_iter().flat_map(json::members) {
            let [keys] = self.find(self.part(of_table)?.value(), ["Keys"])?;
            let keys = keys.ok_or_else(|| self.protocol("it has no `Keys`".to_owned()))?;
            for key in json::elements(keys) {
                match self.find(self.part(key)?, [&table.key_attribute]).and_then(|[key]| self.key(key)) {
                    Ok(key) => batch.unprocessed.push(key),
                    Err(cause) => batch.unreadable = Some(cause),
                }
            }
        }
        Ok(batch)
    }

    fn add_item(&self, item: &[u8], table: &Table, batch: &mut Batch) {
        let attributes = self.find(item, [&table.key_attribute, &table.value_attribute]);
        match attributes.and_then(|[key, value]| Ok((self.key(key)?, value))) {
            Ok((key, value)) => _ = batch.items.insert(key, self.value(value, table).map(Some)),
            Err(cause) => batch.unreadable = Some(cause),
        }
    }

    /// Reads the answer to a write or a removal: the capacity units that it consumed, if the answer
    /// says so.
    pub(super) fn written(&self) -> Result<Option<f64>, Cause> {
        if self.status == StatusCode::OK {
            // It is done, whatever the body says.
            let consumed = self.read(["ConsumedCapacity"]).ok().and_then(|[consumed]| consumed);
            return Ok(units(consumed));
        }
        Err(self.refusal(Operation::Write))
    }

    /// Reads the members called `names` of the object that answers a read or an acknowledged write.
    fn read<const N: usize>(&self, names: [&str; N]) -> Result<[Option<&[u8]>; N], Cause> {
        if self.status != StatusCode::OK {
            return Err(self.refusal(Operation::Read));
        }
        self.find(json::without_mark(self.body), names)
    }

    fn find<'a, const N: usize>(
        &self,
        object: &'a [u8],
        names: [&str; N],
    ) -> Result<[Option<&'a [u8]>; N], Cause> {
        self.part(json::find(object, names))
    }

    fn part<T>(&self, part: Result<T, String>) -> Result<T, Cause> {
        part.map_err(|problem| self.protocol(problem))
    }

    fn key(&self, attribute: Option<&[u8]>) -> Result<String, Cause> {
        let key = self.attribute(attribute)?.and_then(|attribute| attribute.string);
        key.ok_or_else(|| self.protocol("an item without its key".to_owned()))
    }

    fn value(&self, attribute: Option<&[u8]>, table: &Table) -> Result<Found, Cause> {
        let attribute = self.attribute(attribute)?;
        let value = match table.value {
            DynamoDbValue::Binary => {
                let text = attribute.and_then(|attribute| attribute.binary);
                text.map(|text| STANDARD.decode(text).map(Bytes::from)).transpose()
            }
            DynamoDbValue::String => Ok(attribute.and_then(|attribute| attribute.string).map(Bytes::from)),
        };
        let value = value.map_err(|error| self.protocol(format!("a binary is no base64: {error}")))?;
        value.map(Found::from).ok_or_else(|| Cause::Statement {
            detail: format!(
                "the item has no {} in its attribute {}",
                match table.value {
                    DynamoDbValue::Binary => "binary",
                    DynamoDbValue::String => "string",
                },
                table.value_attribute
            ),
        })
    }

    /// Reads an attribute of an item; none if the item does not have it.
    fn attribute(&self, json: Option<&[u8]>) -> Result<Option<Attribute>, Cause> {
        let read = json.map(serde_json::from_slice).transpose();
        read.map_err(|error| self.protocol(format!("an attribute: {error}")))
    }

    /// True if the request was not carried out because its credentials were refused.
    pub(super) fn refuses_credentials(&self) -> bool {
        let refusal = || self.refusal(Operation::Read);
        self.status.is_client_error() && matches!(refusal(), Cause::Credentials { .. })
    }

    /// The cause of a request that was not carried out, or not known to be.
    fn refusal(&self, operation: Operation) -> Cause {
        let refusal = serde_json::from_slice::<Refusal>(json::without_mark(self.body));
        let Ok(Refusal { name, message }) = refusal else {
            return match self.status.as_u16() {
                500.. => Cause::Server { detail: format!("status {}", self.status) },
                _ => self.protocol(format!("status {}", self.status)),
            };
        };
        let name = name.rsplit('#').next().unwrap_or_default();
        let detail = match message.as_str() {
            "" => name.to_owned(),
            message => format!("{name}: {message}"),
        };
        match name {
            "ProvisionedThroughputExceededException" | "ThrottlingException" | "RequestLimitExceeded" => {
                Cause::Throttled { detail }
            }
            "InvalidSignatureException" | "RequestExpired" if is_about_time(&message) => Cause::Credentials {
                detail: format!("this machine's clock differs from the server's: {detail}"),
            },
            "UnrecognizedClientException"
            | "InvalidSignatureException"
            | "IncompleteSignatureException"
            | "MissingAuthenticationTokenException"
            | "ExpiredTokenException"
            | "RequestExpired"
            | "InvalidClientTokenId" => Cause::Credentials { detail },
            "AccessDeniedException" => Cause::Forbidden { detail },
            "ResourceNotFoundException" => Cause::Missing { what: "the table", detail },
            "TransactionConflictException" | "ReplicatedWriteConflictException" => Cause::Busy { detail },
            _ => match (self.status.as_u16(), operation) {
                (503, Operation::Read) => Cause::Busy { detail },
                (500.., _) => Cause::Server { detail },
                _ => Cause::Statement { detail },
            },
        }
    }

    fn protocol(&self, detail: String) -> Cause {
        Cause::Protocol { address: self.address.clone(), expected: "DynamoDB", detail }
    }
}

/// True for the message of a signature that is refused because of its time.
fn is_about_time(message: &str) -> bool {
    message.contains("expired") || message.contains("not yet current")
}

/// Returns the sum of the capacity units in an answer, of one table or a list of them; none if
/// there are no usable ones.
fn units(consumed: Option<&[u8]>) -> Option<f64> {
    let consumed = consumed?;
    let each: Vec<Consumed> = match consumed {
        [b'[', ..] => serde_json::from_slice(consumed).ok()?,
        one => vec![serde_json::from_slice(one).ok()?],
    };
    let sum = each.into_iter().map(|consumed| consumed.units).reduce(|one, other| one + other)?;
    (sum.is_finite() && sum >= 0.0).then_some(sum)
}

/// An attribute of a type that keys and values can have; other types are ignored.
#[derive(Deserialize)]
struct Attribute {
    #[serde(rename = "S", default)]
    string: Option<String>,
    #[serde(rename = "B", default)]
    binary: Option<String>,
}

#[derive(Deserialize)]
struct Consumed {
    #[serde(rename = "CapacityUnits")]
    units: f64,
}

#[derive(Deserialize)]
struct Refusal {
    #[serde(rename = "__type")]
    name: String,
    #[serde(rename = "message", alias = "Message", default)]
    message: String,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::options::DynamoDbOptions;
    use super::*;
    use crate::Fault;

    fn table() -> Table {
        Table::new(&DynamoDbOptions::new("orders", "eu-central-1"))
    }

    fn answer(status: u16, body: &[u8]) -> Answer<'_> {
        Answer { status: StatusCode::from_u16(status).unwrap(), body, address: "h:1".to_owned() }
    }

    fn bytes(each: Each) -> Result<Option<Bytes>, &'static str> {
        each.map(|found| found.map(|found| found.value)).map_err(|cause| cause.label())
    }

    #[test]
    fn item_of_one_key_is_its_value_and_its_units() {
        let read = |body: serde_json::Value| {
            let (each, units) = answer(200, body.to_string().as_bytes()).item(&table()).unwrap();
            (bytes(each), units)
        };
        let consumed = json!({ "TableName": "orders", "CapacityUnits": 0.5 });
        assert_eq!(
            read(json!({ "Item": { "value": { "B": "/wA=" } }, "ConsumedCapacity": consumed })),
            (Ok(Some(Bytes::from_static(b"\xff\x00"))), Some(0.5))
        );
        assert_eq!(read(json!({ "ConsumedCapacity": consumed })), (Ok(None), Some(0.5)), "absent");
        assert_eq!(read(json!({ "Item": {} })), (Err("statement"), None));
        assert_eq!(read(json!({ "Item": { "value": { "N": "1" } } })), (Err("statement"), None));
        assert_eq!(read(json!({ "Item": { "value": { "B": "!" } } })), (Err("protocol"), None));
    }

    #[test]
    fn batch_has_items_by_key_unprocessed_keys_and_units() {
        let body = json!({
            "Responses": { "orders": [
                { "key": { "S": "b" }, "value": { "B": "Yg==" } },
                { "key": { "S": "a" }, "value": { "S": "text" } },
            ] },
            "UnprocessedKeys": { "orders": { "Keys": [{ "key": { "S": "c" } }], "ConsistentRead": false } },
            "ConsumedCapacity": [{ "TableName": "orders", "CapacityUnits": 1.5 }],
        });
        let Batch { items, unprocessed, unreadable, units } =
            answer(200, body.to_string().as_bytes()).batch(&table()).unwrap();
        let items: Vec<_> = items.into_iter().map(|(key, each)| (key, bytes(each))).collect();
        assert_eq!(items, [("a".to_owned(), Err("statement")), ("b".to_owned(), Ok(Some("b".into())))]);
        assert_eq!((unprocessed, unreadable, units), (vec!["c".to_owned()], None, Some(1.5)));
        for body in [
            r#"{"Responses":[]}"#,
            r#"{"Responses":{"orders":{}}}"#,
            r#"{"Responses":{},"UnprocessedKeys":{"orders":{}}}"#,
            r#"{"UnprocessedKeys":{}}"#,
            "<html>",
            "",
        ] {
            assert_eq!(
                answer(200, body.as_bytes()).batch(&table()).unwrap_err().label(),
                "protocol",
                "{body}"
            );
        }
    }

    /// Returns the results of keys a to c in a batch in which the item of b has the value `wrong`.
    fn beside(wrong: &str) -> [Result<Option<Bytes>, &'static str>; 3] {
        let body = format!(
            r#"{{"Responses":{{"orders":[{{"key":{{"S":"a"}},"value":{{"B":"MQ=="}}}},{{"value":{wrong},"key":{{"S":"b"}}}},{{"key":{{"S":"c"}},"value":{{"B":"Mg=="}}}}]}},"UnprocessedKeys":null}}"#
        );
        results(&format!("\u{feff}{body}"))
    }

    /// Returns the results of keys a to c if `body` is the answer to a batch.
    fn results(body: &str) -> [Result<Option<Bytes>, &'static str>; 3] {
        let batch = answer(200, body.as_bytes()).batch(&table()).unwrap();
        let (mut rest, mut found) = (vec!["a", "b", "c"], BTreeMap::new());
        batch.take(&mut rest, &mut found);
        assert!(rest.is_empty());
        found.into_values().map(bytes).collect::<Vec<_>>().try_into().unwrap()
    }

    #[test]
    fn malformed_item_of_a_batch_fails_only_its_own_key() {
        for (wrong, label) in [
            (r#"{"B":5}"#, "protocol"),
            (r#"{"B":"!"}"#, "protocol"),
            (r#"{"B":"\ud800"}"#, "protocol"),
            ("NaN", "protocol"),
            (r#"{"N":18446744073709551616}"#, "statement"),
            (r#"{"B":null}"#, "statement"),
            ("null", "statement"),
        ] {
            assert_eq!(beside(wrong), [Ok(Some("1".into())), Err(label), Ok(Some("2".into()))], "{wrong}");
        }
    }

    #[test]
    fn keys_missing_from_a_batch_fail_if_the_key_of_some_item_is_unreadable() {
        for item in ["{}", "1", r#"{"key":{"S":5}}"#, r#"{"key":{"S":"\ud800"}}"#, r#"{"key":{"N":"1"}}"#] {
            let body = format!(
                r#"{{"Responses":{{"orders":[{item},{{"key":{{"S":"a"}},"value":{{"B":"MQ=="}}}}]}}}}"#
            );
            assert_eq!(results(&body), [Ok(Some("1".into())), Err("protocol"), Err("protocol")], "{item}");
            let body = format!(r#"{{"Responses":{{}},"UnprocessedKeys":{{"orders":{{"Keys":[{item}]}}}}}}"#);
            assert_eq!(results(&body), [Err("protocol"), Err("protocol"), Err("protocol")], "{item}");
        }
    }

    #[test]
    fn malformed_consumed_capacity_is_reported_as_unknown() {
        for consumed in
            ["null", "1", "[]", "{}", r#"{"CapacityUnits":"1"}"#, r#"{"CapacityUnits":1e999}"#, "[NaN]"]
        {
            let body = format!(r#"{{"Item":{{"value":{{"B":"MQ=="}}}},"ConsumedCapacity":{consumed}}}"#);
            let (each, units) = answer(200, body.as_bytes()).item(&table()).unwrap();
            assert_eq!((bytes(each), units), (Ok(Some("1".into())), None), "{consumed}");
        }
    }

    #[test]
    fn each_refusal_is_mapped_to_its_cause() {
        for (status, name, message, cause, fault) in [
            (400, "ProvisionedThroughputExceededException", "", "throttled", Fault::Throttled),
            (400, "ThrottlingException", "", "throttled", Fault::Throttled),
            (400, "RequestLimitExceeded", "", "throttled", Fault::Throttled),
            (400, "UnrecognizedClientException", "", "credentials", Fault::Unreachable),
            (400, "ExpiredTokenException", "", "credentials", Fault::Unreachable),
            (400, "AccessDeniedException", "", "credentials", Fault::Rejected),
            (400, "ResourceNotFoundException", "", "missing", Fault::Rejected),
            (400, "ValidationException", "no such key", "statement", Fault::Rejected),
            (400, "ReplicatedWriteConflictException", "", "busy", Fault::Overloaded),
            (500, "InternalServerError", "", "server", Fault::Broken),
        ] {
            let body =
                json!({ "__type": format!("com.amazonaws.dynamodb.v20120810#{name}"), "message": message });
            let refused = answer(status, body.to_string().as_bytes()).written().unwrap_err();
            assert_eq!((refused.label(), refused.fault()), (cause, fault), "{name}");
            assert!(refused.to_string().contains(name) && refused.to_string().contains(message), "{refused}");
        }
        let unavailable = br#"{"__type":"ServiceUnavailable","Message":"later"}"#;
        assert_eq!(answer(503, unavailable).item(&table()).unwrap_err().fault(), Fault::Overloaded);
        assert_eq!(answer(503, unavailable).written().unwrap_err().fault(), Fault::Broken, "it may be done");
        assert_eq!(answer(404, b"<html>").item(&table()).unwrap_err().label(), "protocol");
        assert_eq!(answer(502, b"<html>").written().unwrap_err().label(), "server");
    }

    #[test]
    fn refusal_because_of_the_time_names_the_clock() {
        let message = "Signature expired: 20261125T040000Z is now earlier than 20261125T041500Z";
        let body =
            json!({ "__type": "com.amazon.coral.service#InvalidSignatureException", "message": message });
        let said = answer(400, body.to_string().as_bytes()).written().unwrap_err().to_string();
        assert!(said.contains("clock") && said.contains(message), "{said}");
    }

    #[test]
    fn write_with_status_200_is_done_whatever_its_body_says() {
        for (body, units) in [
            (&br#"{"ConsumedCapacity":{"CapacityUnits":2.0}}"#[..], Some(2.0)),
            (b"{}", None),
            (b"\xff", None),
        ] {
            assert_eq!(answer(200, body).written(), Ok(units));
        }
        assert_eq!(answer(200, br#"{"ConsumedCapacity":{"CapacityUnits":-1}}"#).written(), Ok(None));
    }

    /// Bytes that resemble answers.
    fn bodies() -> impl Strategy<Value = Vec<u8>> {
        let word = prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            ":",
            ",",
            "\"Item\"",
            "\"Responses\"",
            "\"UnprocessedKeys\"",
            "\"Keys\"",
            "\"ConsumedCapacity\"",
            "\"CapacityUnits\"",
            "\"key\"",
            "\"value\"",
            "\"S\"",
            "\"B\"",
            "\"orders\"",
            "\"__type\"",
            "\"message\"",
            "\"AA==\"",
            "\"A\"",
            "\"\\ud800\"",
            "1e999",
            "-1",
            "null",
            " ",
            "\u{0}",
        ]);
        let words = prop::collection::vec(word, 0..60).prop_map(|words| words.concat().into_bytes());
        prop_oneof![words, prop::collection::vec(any::<u8>(), 0..200)]
    }

    proptest! {
        #[test]
        fn any_answer_is_read_or_an_error(body in bodies(), status in prop::sample::select(vec![200, 204, 301, 400, 403, 500, 503])) {
            let answer = answer(status, &body);
            let _ = answer.item(&table());
            let _ = answer.batch(&table());
            let _ = answer.written();
        }

        #[test]
        fn written_value_is_the_value_of_the_item_read(value: Vec<u8>) {
            let put = table().put(b"k", &value, usize::MAX).unwrap();
            let body = json!({ "Item": put["Item"] }).to_string();
            let (each, _) = answer(200, body.as_bytes()).item(&table()).unwrap();
            prop_assert_eq!(bytes(each), Ok(Some(value.into())));
        }
    }
}
