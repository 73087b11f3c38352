//! Options of DynamoDB stores.

use std::ops::RangeInclusive;

use aws_credential_types::Credentials;
use hyper::Uri;
use serde::Deserialize;
use sherwood_textfile::Reader;

use crate::OpenCause;
use crate::escape::quoted;
use crate::remote::http::address;
use crate::remote::options::RemoteOptions;
use crate::remote::secret::Secret;

/// Range of the length of a table's name, or of its ARN.
const TABLE_CHARS: RangeInclusive<usize> = 3..=1_024;

/// Range of the length of an attribute's name in bytes.
const ATTRIBUTE_BYTES: RangeInclusive<usize> = 1..=255;

/// Longest name of a region; AWS's have at most 14 characters.
const REGION_CHARS: RangeInclusive<usize> = 1..=32;

/// Options of a DynamoDB table, whose items are a key and a value.
///
/// ```
/// use sherwood_store::DynamoDbOptions;
/// let options = DynamoDbOptions::new("orders", "eu-central-1");
/// assert_eq!((options.key_attribute.as_str(), options.consistent), ("key", false));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DynamoDbOptions {
    /// The table's name or ARN, 3 to 1,024 characters. Its primary key is a partition key of type
    /// string, without a sort key.
    pub table: String,
    /// The region of the table, such as `eu-central-1`; requests are signed for it.
    pub region: String,
    /// The URL of the service, such as `http://127.0.0.1:8000`; the region's endpoint at AWS by
    /// default.
    #[serde(default)]
    pub endpoint: Option<String>,
    /// The name of the partition key's attribute, 1 to 255 bytes; `key` by default.
    #[serde(default = "key_attribute")]
    pub key_attribute: String,
    /// The name of the attribute with the value, 1 to 255 bytes; `value` by default.
    #[serde(default = "value_attribute")]
    pub value_attribute: String,
    /// The type of that attribute; binary by default.
    #[serde(default)]
    pub value: DynamoDbValue,
    /// True for strongly consistent reads, which consume twice the capacity; false by default.
    #[serde(default)]
    pub consistent: bool,
    /// The places of the credentials.
    #[serde(default)]
    pub credentials: AwsCredentials,
    /// Options of the connections. `connections_max` is the number of concurrent requests, 16 by
    /// default.
    #[serde(default = "remote")]
    pub remote: RemoteOptions,
}

/// The type of the attribute that holds the value of an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DynamoDbValue {
    /// Binary (`B`): any bytes, sent as base64.
    #[default]
    Binary,
    /// String (`S`): UTF-8.
    String,
}

/// The places of AWS credentials. They are read when a store is opened; files are read again when
/// they change or the service refuses the credentials. By default the places are the environment
/// variables that AWS's own tools read: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and, if it is
/// set, `AWS_SESSION_TOKEN`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AwsCredentials {
    /// The place of the access key's id.
    pub access_key_id: Secret,
    /// The place of the secret access key.
    pub secret_access_key: Secret,
    /// The place of the session token, for temporary credentials.
    #[serde(default)]
    pub session_token: Option<Secret>,
}

/// The environment variable of AWS's tools with the session token.
const SESSION_TOKEN: &str = "AWS_SESSION_TOKEN";

impl Default for AwsCredentials {
    fn default() -> Self {
        let env = |name: &str| Secret::Env(name.to_owned());
        Self {
            access_key_id: env("AWS_ACCESS_KEY_ID"),
            secret_access_key: env("AWS_SECRET_ACCESS_KEY"),
            session_token: Some(env(SESSION_TOKEN)),
        }
    }
}

impl AwsCredentials {
    /// Reads the credentials from their places.
    pub(super) fn read(&self, reader: &mut Reader) -> Result<Credentials, OpenCause> {
        const REMEDY: &str = "give `credentials` with access_key_id, secret_access_key and, for temporary ones, session_token, each as { env = \"NAME\" } or { file = \"PATH\" }, or set the environment variables of AWS's tools";
        let Self { access_key_id, secret_access_key, session_token } = self;
        let builder = Credentials::builder()
            .access_key_id(access_key_id.read_for("credentials.access_key_id", REMEDY, reader)?)
            .secret_access_key(secret_access_key.read_for("credentials.secret_access_key", REMEDY, reader)?)
            .provider_name("sherwood");
        let token = session_token.as_ref().filter(|token| !is_unset_default(token));
        let token =
            token.map(|token| token.read_for("credentials.session_token", REMEDY, reader)).transpose()?;
        Ok(match token {
            Some(token) => builder.session_token(token),
            None => builder,
        }
        .build())
    }
}

/// True for the default place of the session token, which long-lived credentials leave empty.
fn is_unset_default(token: &Secret) -> bool {
    *token == Secret::Env(SESSION_TOKEN.to_owned())
        && std::env::var_os(SESSION_TOKEN).is_none_or(|token| token.is_empty())
}

impl DynamoDbOptions {
    /// Default options of a store of this table in this region.
    #[must_use]
    pub fn new(table: impl Into<String>, region: impl Into<String>) -> Self {
        Self {
            table: table.into(),
            region: region.into(),
            endpoint: None,
            key_attribute: key_attribute(),
            value_attribute: value_attribute(),
            value: DynamoDbValue::default(),
            consistent: false,
            credentials: AwsCredentials::default(),
            remote: remote(),
        }
    }

    pub(crate) fn validate(&self) -> Result<(), OpenCause> {
        self.remote.validate()?;
        let Self { table, region, key_attribute, value_attribute, .. } = self;
        let of = |text: &str, more: &[u8]| {
            text.bytes().all(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte))
        };
        if !TABLE_CHARS.contains(&table.len()) || !of(table, b"_.-:/") {
            return Err(refused(
                "table",
                quoted("table", table),
                "write the table's name, 3 to 255 letters, digits, _, - and ., or its ARN",
            ));
        }
        if !REGION_CHARS.contains(&region.len()) || !of(region, b"-") {
            return Err(refused(
                "region",
                quoted("region", region),
                "write a region such as \"eu-central-1\"",
            ));
        }
        for (option, name) in [("key_attribute", key_attribute), ("value_attribute", value_attribute)] {
            if !ATTRIBUTE_BYTES.contains(&name.len()) {
                let detail = format!("it has {} bytes", name.len());
                return Err(refused(option, detail, "write the attribute's name, 1 to 255 bytes"));
            }
        }
        if key_attribute == value_attribute {
            let detail = format!("it is {}, like `key_attribute`", quoted("attribute", value_attribute));
            return Err(refused("value_attribute", detail, "name two different attributes"));
        }
        self.url().map(drop)
    }

    /// The URL to which requests are sent.
    pub(crate) fn url(&self) -> Result<Uri, OpenCause> {
        let default = || format!("https://dynamodb.{}.amazonaws.com", self.region);
        let text = self.endpoint.clone().unwrap_or_else(default);
        let wrong = |detail: &str| {
            refused(
                "endpoint",
                format!("{} {detail}", quoted("URL", &text)),
                "write scheme, host and port, such as \"http://127.0.0.1:8000\", or leave it out for AWS",
            )
        };
        let url: Uri = text.parse().map_err(|_| wrong("is no URL"))?;
        if !matches!(url.scheme_str(), Some("http" | "https")) {
            return Err(wrong("is neither http:// nor https://"));
        }
        if url.path() != "/" || url.query().is_some() || text.contains(['#', '@']) {
            return Err(wrong("has more than scheme, host and port"));
        }
        if address(&url).is_none() {
            return Err(wrong("names no host"));
        }
        if self.remote.tls.is_some() && url.scheme_str() == Some("http") {
            let detail = "the endpoint starts with http://".to_owned();
            return Err(refused("tls", detail, "write https://, or leave `tls` out"));
        }
        Ok(url)
    }
}

fn refused(option: &'static str, detail: String, remedy: &'static str) -> OpenCause {
    OpenCause::Remote { option, detail, remedy }
}

fn key_attribute() -> String {
    "key".to_owned()
}

fn value_attribute() -> String {
    "value".to_owned()
}

fn remote() -> RemoteOptions {
    RemoteOptions { connections_max: 16, ..RemoteOptions::default() }
}

#[cfg(test)]
mod tests {
    use sherwood_textfile::Watched;

    use super::*;

    fn options() -> DynamoDbOptions {
        DynamoDbOptions::new("orders", "eu-central-1")
    }

    fn with_endpoint(endpoint: &str) -> DynamoDbOptions {
        DynamoDbOptions { endpoint: Some(endpoint.to_owned()), ..options() }
    }

    #[test]
    fn endpoint_is_that_of_the_region_unless_given() {
        assert_eq!(options().url().unwrap(), "https://dynamodb.eu-central-1.amazonaws.com/");
        assert_eq!(with_endpoint("http://127.0.0.1:8000").url().unwrap(), "http://127.0.0.1:8000/");
    }

    #[test]
    fn invalid_options_are_refused_by_name() {
        for (options, option) in [
            (DynamoDbOptions { table: "or".into(), ..options() }, "`table`"),
            (DynamoDbOptions { table: "or ders".into(), ..options() }, "`table`"),
            (DynamoDbOptions { region: "eu/1".into(), ..options() }, "`region`"),
            (DynamoDbOptions { region: String::new(), ..options() }, "`region`"),
            (DynamoDbOptions { key_attribute: String::new(), ..options() }, "`key_attribute`"),
            (DynamoDbOptions { value_attribute: "v".repeat(256), ..options() }, "`value_attribute`"),
            (DynamoDbOptions { value_attribute: "key".into(), ..options() }, "`value_attribute`"),
            (with_endpoint("127.0.0.1:8000"), "`endpoint`"),
            (with_endpoint("ftp://h"), "`endpoint`"),
            (with_endpoint("http://h/path"), "`endpoint`"),
            (with_endpoint("http://u:secret@h"), "`endpoint`"),
            (with_endpoint("http://h:0"), "`endpoint`"),
        ] {
            let said = options.validate().unwrap_err().to_string();
            assert!(said.contains(option) && !said.contains("secret"), "{said}");
        }
        let mut tls = with_endpoint("http://h");
        tls.remote.tls = Some(crate::TlsOptions::default());
        assert!(tls.validate().unwrap_err().to_string().contains("`tls`"));
        assert!(
            DynamoDbOptions { table: "arn:aws:dynamodb:eu-central-1:1:table/o".into(), ..options() }
                .validate()
                .is_ok()
        );
    }

    #[test]
    fn credentials_are_read_from_files_and_not_shown() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            Secret::File(path)
        };
        let credentials = AwsCredentials {
            access_key_id: file("id", "AKID\n"),
            secret_access_key: file("secret", "sesame\n"),
            session_token: Some(file("token", "tulip\n")),
        };
        let read = |credentials: &AwsCredentials| {
            let places = credentials.clone();
            Watched::open(move |reader: &mut Reader| places.read(reader)).map(|read| read.current())
        };
        let found = read(&credentials).unwrap();
        assert_eq!((found.access_key_id(), found.secret_access_key()), ("AKID", "sesame"));
        assert_eq!(found.session_token(), Some("tulip"));
        let shown = format!("{found:?} {credentials:?}");
        assert!(!shown.contains("sesame") && !shown.contains("tulip"), "{shown}");
        let absent = Secret::Env("SHERWOOD_TEST_ABSENT".into());
        let said =
            read(&AwsCredentials { secret_access_key: absent, ..credentials }).unwrap_err().to_string();
        assert!(said.contains("`credentials.secret_access_key`") && said.contains("ABSENT"), "{said}");
    }
}
