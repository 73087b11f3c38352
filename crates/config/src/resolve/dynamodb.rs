//! Stores in DynamoDB: `store = { kind = "dynamodb" }`.

use crate::spanned::Spanned;
use sherwood_store::{AwsCredentials, DynamoDbOptions, DynamoDbValue, Secret};

use super::remote::{self, text};
use crate::problem::{Origin, Problems};
use crate::raw::{Key, RawCredentials, RawStore};
use crate::scope::{Given, Setting, given, one_of};

const VALUE: Setting = Setting::new("[[backend]]", "store.value", "\"binary\"");

pub(super) fn resolve(
    raw: &RawStore,
    origin: &Origin,
    problems: &mut Problems<'_>,
) -> Option<DynamoDbOptions> {
    let mut needed = |key, said| remote::needed(text(key), said, origin, problems);
    let table = needed(&raw.table, ("table", "which table has its items", "orders"));
    let region = needed(&raw.region, ("region", "in which region its table is", "eu-central-1"));
    let default = DynamoDbOptions::new(table?, region?);
    let values = [("binary", DynamoDbValue::Binary), ("string", DynamoDbValue::String)];
    Some(DynamoDbOptions {
        endpoint: text(&raw.endpoint),
        key_attribute: text(&raw.key_attribute).unwrap_or(default.key_attribute),
        value_attribute: text(&raw.value_attribute).unwrap_or(default.value_attribute),
        value: one_of(problems, VALUE, given(&raw.value), &values),
        consistent: raw.consistent.as_ref().map_or(default.consistent, |consistent| *consistent.get_ref()),
        credentials: given(&raw.credentials)
            .map_or(Some(default.credentials), |given| credentials(&given, problems))?,
        remote: remote::remote(raw, default.remote, problems),
        table: default.table,
        region: default.region,
    })
}

fn credentials(given: &Given<RawCredentials>, problems: &mut Problems<'_>) -> Option<AwsCredentials> {
    let RawCredentials { access_key_id, secret_access_key, session_token } = &given.value;
    let secret = |key: &Key<Secret>| key.as_ref().map(Spanned::get_ref).cloned();
    let mut needed = |key: &Key<Secret>, name, example| {
        if key.is_none() {
            let message = format!(
                "[[backend]] store.credentials has no {name}; it must say where it is: set {name} = {{ env = \"{example}\" }}"
            );
            problems.add(&given.origin, message);
        }
        secret(key)
    };
    let id = needed(access_key_id, "access_key_id", "AWS_ACCESS_KEY_ID");
    let key = needed(secret_access_key, "secret_access_key", "AWS_SECRET_ACCESS_KEY");
    Some(AwsCredentials { access_key_id: id?, secret_access_key: key?, session_token: secret(session_token) })
}
