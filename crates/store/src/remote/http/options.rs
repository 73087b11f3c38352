//! Options of HTTP stores.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use hyper::header::{self, HeaderName};
use hyper::{HeaderMap, Method, StatusCode};
use serde::Deserialize;
use sherwood_textfile::{Reader, Rules, Watched};

use super::url::UrlTemplate;
use crate::OpenCause;
use crate::remote::options::RemoteOptions;

/// Options of an HTTP service.
///
/// ```
/// use sherwood_store::HttpOptions;
/// let options = HttpOptions::new("http://127.0.0.1:8000/items/{key}");
/// assert_eq!(options.remote.connections_max, 16);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpOptions {
    /// The URL of a read, with `{key}`, or the parts of a key split at `:`, `{key.1}` to
    /// `{key.16}`, or `{keys}`: several keys separated by `,`, answered by a JSON object from key
    /// to value.
    pub url: String,
    /// The method and URL of a write, such as `PUT http://127.0.0.1:8000/items/{key}`, with the
    /// value as its body; without it the store is read-only.
    #[serde(default)]
    pub write: Option<String>,
    /// The method and URL of a removal, like `write` but without a body; without it keys cannot be
    /// removed.
    #[serde(default)]
    pub delete: Option<String>,
    /// Headers of every request, by name.
    #[serde(default)]
    pub headers: BTreeMap<String, HeaderValue>,
    /// Options of the connections. `connections_max` is the number of concurrent requests, 16 by
    /// default: over HTTP/2 they share a connection. `value_bytes_max` also bounds all that a call
    /// reads.
    #[serde(default = "remote")]
    pub remote: RemoteOptions,
}

/// The value of a header.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum HeaderValue {
    /// The literal value of the header.
    Text(String),
    /// A secret from a file, which is read again when it changes or the service refuses the secret.
    File {
        /// The file, which has one line; a line end after the value is removed.
        file: PathBuf,
        /// Text before the value, such as `Bearer ` with its blank.
        #[serde(default)]
        prefix: String,
    },
}

impl HttpOptions {
    /// Default options of a store that reads the URL template `url`.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), write: None, delete: None, headers: BTreeMap::new(), remote: remote() }
    }

    pub(crate) fn validate(&self) -> Result<(), OpenCause> {
        self.remote.validate()?;
        self.urls().map(drop)
    }

    pub(super) fn urls(&self) -> Result<Urls, OpenCause> {
        let change =
            |option, text: &Option<String>| text.as_ref().map(|text| Change::parse(option, text)).transpose();
        let urls = Urls {
            read: UrlTemplate::parse("url", &self.url)?,
            write: change("write", &self.write)?,
            delete: change("delete", &self.delete)?,
        };
        if self.remote.tls.is_some() && !urls.are_secure() {
            let detail = "the URL starts with http://".to_owned();
            return Err(OpenCause::Remote {
                option: "tls",
                detail,
                remedy: "write https://, or leave `tls` out",
            });
        }
        Ok(urls)
    }
}

/// The parsed URL templates of an HTTP store.
pub(super) struct Urls {
    pub(super) read: UrlTemplate,
    pub(super) write: Option<Change>,
    pub(super) delete: Option<Change>,
}

impl Urls {
    /// True if a URL of the store is `https`.
    pub(super) fn are_secure(&self) -> bool {
        let changes = [&self.write, &self.delete].into_iter().flatten().map(|change| &change.url);
        std::iter::once(&self.read).chain(changes).any(UrlTemplate::is_secure)
    }
}

fn remote() -> RemoteOptions {
    RemoteOptions { connections_max: 16, ..RemoteOptions::default() }
}

/// The method and URL template of a write or removal.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) method: Method,
    pub(super) url: UrlTemplate,
}

impl Change {
    pub(super) fn parse(option: &'static str, text: &str) -> Result<Self, OpenCause> {
        let refused = |detail: &str| OpenCause::Remote {
            option,
            detail: detail.to_owned(),
            remedy: "write a method and a URL, such as \"PUT http://127.0.0.1:8000/items/{key}\"",
        };
        let (method, url) = text.trim().split_once(' ').ok_or_else(|| refused("it has no method"))?;
        let known = [Method::PUT, Method::POST, Method::PATCH, Method::DELETE];
        let method = known.into_iter().find(|known| known.as_str() == method);
        let method = method.ok_or_else(|| refused("its method is none of PUT, POST, PATCH and DELETE"))?;
        let url = UrlTemplate::parse(option, url.trim())?;
        if url.is_batch() { Err(refused("{keys} is for reading")) } else { Ok(Self { method, url }) }
    }
}

/// Builds the headers of every request to the service; reads the files of their secrets.
fn headers(options: &HttpOptions, reader: &mut Reader) -> Result<HeaderMap, OpenCause> {
    let refused = |name: &str, detail: String, remedy| OpenCause::Remote {
        option: "headers",
        detail: format!("{}: {detail}", crate::escape::user_text(name)),
        remedy,
    };
    let mut headers = HeaderMap::new();
    for (name, value) in &options.headers {
        let known = HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
            refused(name, "it is no name of a header".into(), "write a name such as \"Authorization\"")
        })?;
        if OURS.contains(&known) {
            return Err(refused(name, "it is set for every request as it has to be".into(), "remove it"));
        }
        let (text, secret) = match value {
            HeaderValue::Text(text) => (text.clone(), false),
            HeaderValue::File { file, prefix } => {
                let text = reader.secret(file, Rules::DEFAULT).map_err(|error| {
                    let detail = format!("{} {error}", file.display());
                    refused(name, detail, "name a file of one line that this user may read")
                })?;
                (format!("{prefix}{text}"), true)
            }
        };
        let mut value = hyper::header::HeaderValue::from_str(&text).map_err(|_| {
            refused(name, "its value has line ends or control characters".into(), "write one line of text")
        })?;
        // A sensitive value is not logged, and not added to HTTP/2's compression table.
        value.set_sensitive(secret || known == header::AUTHORIZATION);
        headers.insert(known, value);
    }
    Ok(headers)
}

/// The headers of every request to a service. The files that contain some of them are read again
/// when they change.
pub(super) struct Headers(Watched<HeaderMap>);

impl Headers {
    pub(super) fn open(options: &HttpOptions) -> Result<Self, OpenCause> {
        let options = options.clone();
        Watched::open(move |reader: &mut Reader| headers(&options, reader)).map(Self)
    }

    /// Returns the current headers.
    pub(super) fn current(&self) -> Arc<HeaderMap> {
        self.0.current()
    }

    /// Returns the headers to use instead of `shown`, if the service refused these with `status`
    /// and a file has changed.
    pub(super) fn newer_than(&self, shown: &Arc<HeaderMap>, status: StatusCode) -> Option<Arc<HeaderMap>> {
        // A token that has expired or lost its rights is answered by either.
        let is_refusal =
            [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::PROXY_AUTHENTICATION_REQUIRED]
                .contains(&status);
        if is_refusal { self.0.newer_than(shown) } else { None }
    }
}

/// Headers that the HTTP client sets itself, which cannot be configured.
const OURS: [HeaderName; 4] =
    [header::HOST, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CONNECTION];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_option_is_parsed_as_a_method_and_a_url() {
        let change = Change::parse("write", "PUT http://h/{key}").unwrap();
        assert_eq!((change.method, change.url.of(b"a").unwrap().path()), (Method::PUT, "/a"));
        for text in ["http://h/{key}", "GET http://h/{key}", "PUT http://h/", "PUT http://h/{keys}", ""] {
            assert!(Change::parse("write", text).unwrap_err().to_string().contains("`write`"), "{text}");
        }
    }

    #[test]
    fn headers_are_read_from_text_and_files_and_secrets_are_not_shown() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "sesame\n").unwrap();
        let with = |name: &str, value| {
            let mut options = HttpOptions::new("http://h/{key}");
            options.headers.insert(name.to_owned(), value);
            Headers::open(&options).map(|headers| headers.current())
        };
        let found = with("authorization", HeaderValue::File { file: file.clone(), prefix: "Bearer ".into() });
        let found = found.unwrap();
        assert_eq!(found["authorization"], "Bearer sesame");
        assert!(!format!("{found:?}").contains("sesame"));
        assert_eq!(with("x-a", HeaderValue::Text("b".into())).unwrap()["x-a"], "b");
        for name in ["host", "a b", ""] {
            assert!(with(name, HeaderValue::Text("b".into())).unwrap_err().to_string().contains("`headers`"));
        }
        assert!(with("x-a", HeaderValue::Text("b\r\nc: d".into())).is_err());
        let absent = HeaderValue::File { file: directory.path().join("none"), prefix: String::new() };
        assert!(with("x-a", absent).unwrap_err().to_string().contains("none"));
    }
}
