//! Requests for items of a table, as JSON; pure.
//!
//! Names of attributes stand in `ExpressionAttributeNames`, so that reserved words can be used.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::options::{DynamoDbOptions, DynamoDbValue};
use crate::Cause;

/// Most bytes of an item: the names and values of its attributes together.
const ITEM_BYTES_MAX: usize = 400 << 10;

/// Most bytes of a partition key.
const KEY_BYTES_MAX: usize = 2_048;

/// Most keys of one batch.
pub(super) const BATCH_KEYS_MAX: usize = 100;

/// The table, the shape of its items, and how they are read.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) name: String,
    pub(super) key_attribute: String,
    pub(super) value_attribute: String,
    pub(super) value: DynamoDbValue,
    pub(super) consistent: bool,
}

impl Table {
    pub(super) fn new(options: &DynamoDbOptions) -> Self {
        let DynamoDbOptions { table, key_attribute, value_attribute, value, consistent, .. } =
            options.clone();
        Self { name: table, key_attribute, value_attribute, value, consistent }
    }

    /// Returns the text of a key that an item may have; none for other keys, which have no item: an
    /// empty key, one that is longer than 2,048 bytes or not UTF-8.
    pub(super) fn key(key: &[u8]) -> Option<&str> {
        let text = std::str::from_utf8(key).ok()?;
        (1..=KEY_BYTES_MAX).contains(&text.len()).then_some(text)
    }

    /// Checks a key that is to be written.
    pub(super) fn written_key(key: &[u8]) -> Result<&str, Cause> {
        let refused = || Cause::Refused { what: "key", bytes: key.len(), min: 1, max: KEY_BYTES_MAX };
        if !(1..=KEY_BYTES_MAX).contains(&key.len()) {
            return Err(refused());
        }
        let reason = "a key of DynamoDB is text, and this one is not UTF-8; write keys that are";
        Self::key(key).ok_or(Cause::Unsupported { reason })
    }

    /// The request that reads the item of one key.
    pub(super) fn get(&self, key: &str) -> Value {
        json!({
            "TableName": self.name,
            "Key": self.key_of(key),
            "ConsistentRead": self.consistent,
            "ProjectionExpression": "#v",
            "ExpressionAttributeNames": { "#v": self.value_attribute },
            "ReturnConsumedCapacity": "TOTAL",
        })
    }

    /// The request that reads the items of several different keys, at most [`BATCH_KEYS_MAX`].
    pub(super) fn batch(&self, keys: &[&str]) -> Value {
        let keys: Vec<Value> = keys.iter().map(|key| self.key_of(key)).collect();
        let asked = json!({
            "Keys": keys,
            "ConsistentRead": self.consistent,
            "ProjectionExpression": "#k, #v",
            "ExpressionAttributeNames": { "#k": self.key_attribute, "#v": self.value_attribute },
        });
        json!({ "RequestItems": { &self.name: asked }, "ReturnConsumedCapacity": "TOTAL" })
    }

    /// The request that writes an item, which replaces the key's present item.
    ///
    /// # Errors
    /// When the key or the value cannot be in an item.
    pub(super) fn put(&self, key: &[u8], value: &[u8], value_bytes_max: usize) -> Result<Value, Cause> {
        let key = Self::written_key(key)?;
        let others = self.key_attribute.len() + self.value_attribute.len() + key.len();
        let max = value_bytes_max.min(ITEM_BYTES_MAX - others);
        if value.len() > max {
            return Err(Cause::Refused { what: "value", bytes: value.len(), min: 0, max });
        }
        let value = match self.value {
            DynamoDbValue::Binary => json!({ "B": STANDARD.encode(value) }),
            DynamoDbValue::String => {
                let reason = "the value is not UTF-8, and the backend writes strings; leave `value` out to write binaries";
                json!({ "S": std::str::from_utf8(value).map_err(|_| Cause::Unsupported { reason })? })
            }
        };
        Ok(json!({
            "TableName": self.name,
            "Item": { &self.key_attribute: { "S": key }, &self.value_attribute: value },
            "ReturnConsumedCapacity": "TOTAL",
        }))
    }

    /// The request that removes an item.
    pub(super) fn delete(&self, key: &str) -> Value {
        json!({ "TableName": self.name, "Key": self.key_of(key), "ReturnConsumedCapacity": "TOTAL" })
    }

    fn key_of(&self, key: &str) -> Value {
        json!({ &self.key_attribute: { "S": key } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        Table::new(&DynamoDbOptions::new("orders", "eu-central-1"))
    }

    #[test]
    fn requests_name_attributes_by_placeholders() {
        assert_eq!(
            table().get("a\"b"),
            json!({
                "TableName": "orders", "Key": { "key": { "S": "a\"b" } }, "ConsistentRead": false,
                "ProjectionExpression": "#v", "ExpressionAttributeNames": { "#v": "value" },
                "ReturnConsumedCapacity": "TOTAL",
            })
        );
        let batch = Table { consistent: true, ..table() }.batch(&["a", "b"]);
        assert_eq!(
            batch["RequestItems"]["orders"],
            json!({
                "Keys": [{ "key": { "S": "a" } }, { "key": { "S": "b" } }], "ConsistentRead": true,
                "ProjectionExpression": "#k, #v", "ExpressionAttributeNames": { "#k": "key", "#v": "value" },
            })
        );
        let put = table().put(b"a", b"\xff\x00", 9).unwrap();
        assert_eq!(put["Item"], json!({ "key": { "S": "a" }, "value": { "B": "/wA=" } }));
        let text = Table { value: DynamoDbValue::String, ..table() };
        assert_eq!(text.put(b"a", b"x", 9).unwrap()["Item"]["value"], json!({ "S": "x" }));
        assert_eq!(text.put(b"a", b"\xff", 9).unwrap_err().label(), "unsupported");
    }

    #[test]
    fn written_item_may_have_400_kib_with_its_names_and_key() {
        let max = ITEM_BYTES_MAX - "key".len() - "value".len() - 1;
        assert!(table().put(b"k", &vec![0; max], usize::MAX).is_ok());
        let refused = table().put(b"k", &vec![0; max + 1], usize::MAX).unwrap_err();
        assert_eq!(refused, Cause::Refused { what: "value", bytes: max + 1, min: 0, max });
        assert_eq!(table().put(b"k", b"abc", 2).unwrap_err().label(), "refused");
    }

    #[test]
    fn key_that_no_item_can_have_is_absent_and_not_written() {
        for key in [&b""[..], b"\xff", &[b'k'; KEY_BYTES_MAX + 1]] {
            assert_eq!(Table::key(key), None);
            assert!(Table::written_key(key).is_err());
        }
        assert_eq!(Table::key(&[b'k'; KEY_BYTES_MAX]).map(str::len), Some(KEY_BYTES_MAX));
    }
}
