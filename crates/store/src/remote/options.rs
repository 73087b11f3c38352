//! What every connector can be told.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Deserialize;

use super::socket::Endpoint;
use super::tls::{self, TlsOptions};
use crate::OpenCause;
use crate::options::check;

/// How a connector deals with its server: bounds of what is open and under way, and how long it
/// waits.
///
/// ```
/// use sherwood_store::RemoteOptions;
/// let options: RemoteOptions = serde_json::from_str(r#"{"connections_max": 2}"#).unwrap();
/// assert_eq!((options.connections_max, options.value_bytes_max), (2, 16 << 20));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RemoteOptions {
    /// Speak TLS; none speaks in clear.
    pub tls: Option<TlsOptions>,
    /// Connections open at a time, 1 to 1,024; 4 by default.
    pub connections_max: u16,
    /// Calls under way or waiting at a time, 1 to 1,000,000; 1,024 by default. One more is refused.
    pub queued_calls_max: u32,
    /// Bytes that a value, and all values of one call together, may have, 1 KiB to 512 MiB; 16 MiB
    /// by default.
    pub value_bytes_max: u64,
    /// Time to look up the name, connect, speak TLS and log in, each of them (of databases all
    /// together), 10 to 600,000 ms; 1,000 by default.
    pub connect_timeout_ms: u64,
    /// Time in which nothing arrives while an answer is owed, after which the connection is given
    /// up, 10 to 600,000 ms; 1,500 by default. Less than the time-out of the backend, or that one
    /// ends the call first and knows less.
    pub answer_timeout_ms: u64,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            tls: None,
            connections_max: 4,
            queued_calls_max: 1024,
            value_bytes_max: 16 << 20,
            connect_timeout_ms: 1_000,
            answer_timeout_ms: 1_500,
        }
    }
}

impl RemoteOptions {
    /// Connections that may be open.
    pub const CONNECTIONS_MAX: RangeInclusive<u16> = 1..=1_024;
    /// Bytes that the longest value may have.
    pub const VALUE_BYTES_MAX: RangeInclusive<u64> = 1 << 10..=512 << 20;
    /// Milliseconds that may be waited.
    pub const TIMEOUT_MS: RangeInclusive<u64> = 10..=600_000;

    pub(crate) fn validate(&self) -> Result<(), OpenCause> {
        let Self {
            tls: _,
            connections_max,
            queued_calls_max,
            value_bytes_max,
            connect_timeout_ms,
            answer_timeout_ms,
        } = self;
        check("connections_max", *connections_max, &Self::CONNECTIONS_MAX)?;
        check("queued_calls_max", *queued_calls_max, &crate::StoreOptions::QUEUED_CALLS_MAX)?;
        check("value_max", *value_bytes_max, &Self::VALUE_BYTES_MAX)?;
        check("connect_timeout", *connect_timeout_ms, &Self::TIMEOUT_MS)?;
        check("answer_timeout", *answer_timeout_ms, &Self::TIMEOUT_MS)
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.connect_timeout_ms)
    }

    pub(crate) fn answer_timeout(&self) -> Duration {
        Duration::from_millis(self.answer_timeout_ms)
    }
}

/// Seconds after which what is written may be told to expire: beyond, memcached takes them for a
/// date.
const WRITE_TTL_S: RangeInclusive<u64> = 1..=2_592_000;

/// What is to be said of the way to a server, for a report.
pub(crate) fn details(endpoint: &Endpoint, options: &RemoteOptions) -> Vec<String> {
    let security = match &options.tls {
        Some(tls) => format!("TLS, {}", tls::trust(tls)),
        None => "no TLS".to_owned(),
    };
    vec![format!("{}, {security}", endpoint.address)]
}

pub(crate) fn check_write_ttl(write_ttl_s: Option<u32>) -> Result<(), OpenCause> {
    write_ttl_s.map_or(Ok(()), |seconds| check("write_ttl", u64::from(seconds), &WRITE_TTL_S))
}

pub(crate) fn half_a_login() -> OpenCause {
    OpenCause::Remote {
        option: "user",
        detail: "there is a user without a password, or a password without a user".to_owned(),
        remedy: "give `user` and one of `password_file` and `password_env`, or none of them",
    }
}
