//! Options of all connectors.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Deserialize;

use super::socket::Endpoint;
use super::tls::{self, TlsOptions};
use crate::OpenCause;
use crate::range::{QUEUED_CALLS_MAX, check};

/// Options of a connector's connections: bounds and timeouts.
///
/// ```
/// use sherwood_store::RemoteOptions;
/// let options: RemoteOptions = serde_json::from_str(r#"{"connections_max": 2}"#).unwrap();
/// assert_eq!((options.connections_max, options.value_bytes_max), (2, 16 << 20));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RemoteOptions {
    /// Options of TLS; without them connections are in clear.
    pub tls: Option<TlsOptions>,
    /// Most open connections, 1 to 1,024; 4 by default.
    pub connections_max: u16,
    /// Most calls in flight or waiting, 1 to 1,000,000; 1,024 by default. One more is refused.
    pub queued_calls_max: u32,
    /// Most bytes of a value, and of all values of one call together, 1 KiB to 512 MiB; 16 MiB by
    /// default.
    pub value_bytes_max: u64,
    /// Timeout for each of resolving the name, connecting, the TLS handshake and logging in (for
    /// databases, for all together), 10 to 600,000 ms; 1,000 by default.
    pub connect_timeout_ms: u64,
    /// Time without any bytes from the server while an answer is outstanding, after which the
    /// connection is closed, 10 to 600,000 ms; 1,500 by default. It should be less than the
    /// backend's timeout, which otherwise ends the call first, with a less specific error.
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
    /// Accepted range of the option `connections_max`.
    pub const CONNECTIONS_MAX: RangeInclusive<u16> = 1..=1_024;
    /// Accepted range of the option `value_bytes_max`.
    pub const VALUE_BYTES_MAX: RangeInclusive<u64> = 1 << 10..=512 << 20;
    /// Range of the timeouts in milliseconds.
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
        check("queued_calls_max", *queued_calls_max, &QUEUED_CALLS_MAX)?;
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

/// Range of the time to live of written values, in seconds: memcached takes larger numbers for a
/// Unix time.
const WRITE_TTL_S: RangeInclusive<u64> = 1..=2_592_000;

/// Describes the connection to a server, for a report.
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
