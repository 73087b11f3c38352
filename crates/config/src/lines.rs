//! A configuration in a few lines: what a node says when it starts, and `check-config`.

use sherwood_listener::{ListenerOptions, Protocol, TLS_CONNECTION_BYTES_MAX};

use super::http_limits;
use super::meaning::{BackendConfig, BatchMode, Config, HTTP_CONNECTIONS_MAX, OTLP_CONNECTIONS_MAX};
use super::units::ByteSize;

/// Most backends whose names a line lists.
const BACKENDS_SHOWN: usize = 10;

impl Config {
    /// Returns the line that a node prints at its start about its memory:
    /// `memory: 1GiB for the cache + 8MiB for 2 embedded stores = 1032MiB`.
    #[must_use]
    pub fn memory_line(&self) -> String {
        let total = self.memory.total_bytes;
        let stores = self.backends.iter().flat_map(|backend| &backend.replicas);
        let stores = stores.filter(|store| store.is_embedded()).count();
        let plural = if stores == 1 { "" } else { "s" };
        let (cache, embedded) = (ByteSize(total), ByteSize(self.stores_bytes()));
        let sum = ByteSize(total.saturating_add(embedded.0));
        match stores {
            0 => format!("memory: {cache} for the cache"),
            _ => format!(
                "memory: {cache} for the cache + {embedded} for {stores} embedded store{plural} = {sum}"
            ),
        }
    }

    /// Returns the line that a node prints at its start about its backends:
    /// `backends: catalog (sqlite), prices (redis, 3 replicas)`.
    #[must_use]
    pub fn backends_line(&self) -> String {
        let with_stores = || self.backends.iter().filter(|backend| !backend.replicas.is_empty());
        let mut shown: Vec<_> = with_stores().take(BACKENDS_SHOWN).map(backend_with_store).collect();
        if shown.is_empty() {
            return "backends: none, a plain cache".to_owned();
        }
        let more = with_stores().count().saturating_sub(BACKENDS_SHOWN);
        if more > 0 {
            shown.push(format!("{more} more"));
        }
        format!("backends: {}", shown.join(", "))
    }

    /// Returns the line that a node prints at its start about the sources of finished requests,
    /// which its control loop decides by:
    /// `requests: from the gateway, reports and traces, else from batches of listeners' clients`.
    #[must_use]
    pub fn requests_line(&self) -> String {
        const BATCHES: &str = "from batches of listeners' clients";
        let told = match (self.admin, self.otlp) {
            (Some(_), _) => Some("from the gateway, reports and traces"),
            (None, Some(_)) => Some("from traces"),
            (None, None) => None,
        };
        let any = |mode| self.listeners.iter().any(|listener| listener.requests == mode);
        match (told, any(BatchMode::Always), any(BatchMode::Auto)) {
            (Some(told), true, _) => format!("requests: {told}, and {BATCHES}"),
            (Some(told), false, true) => format!("requests: {told}, else {BATCHES}"),
            (Some(told), false, false) => format!("requests: {told}"),
            (None, false, false) => {
                "requests: none: [admin], [otlp] and batches of listeners are off".to_owned()
            }
            (None, ..) => format!("requests: {BATCHES}"),
        }
    }

    /// Returns the line of `check-config` about the most memory that clients can use in addition:
    /// `buffers: at most 3.5GiB more if every client uses all it may: 256.0MiB for requests,
    /// answers and fetched values, 3.1GiB for 1024 memcached connections, 128.0MiB for 1024 HTTP
    /// connections; less with a lower max_connections, max_item_size or buffers`.
    #[must_use]
    pub fn buffers_line(&self) -> String {
        let parts: Vec<(u64, String)> = std::iter::once(self.shared_buffers())
            .chain(self.listeners_buffers())
            .chain(self.admin.map(|_| self.http_buffers()))
            .chain(self.otlp.map(|_| self.otlp_buffers()))
            .collect();
        let sum = parts.iter().fold(0, |sum: u64, (bytes, _)| sum.saturating_add(*bytes));
        let parts: Vec<_> = parts.iter().map(|(bytes, what)| format!("{} {what}", rounded(*bytes))).collect();
        format!(
            "buffers: at most {} more if every client uses all it may: {}; less with a lower max_connections, max_item_size \
             or buffers",
            rounded(sum),
            parts.join(", ")
        )
    }

    fn shared_buffers(&self) -> (u64, String) {
        (self.memory.buffers_bytes_max, "for requests, answers and fetched values".to_owned())
    }

    /// The most that connections to listeners use, by protocol.
    fn listeners_buffers(&self) -> impl Iterator<Item = (u64, String)> {
        let options =
            ListenerOptions { item_size_max: self.memory.item_bytes_max, ..ListenerOptions::default() };
        let of = move |protocol| self.listeners.iter().filter(move |listener| listener.protocol == protocol);
        let connections = self.server.connections_max;
        let spoken = Protocol::ALL.into_iter().filter(move |&protocol| of(protocol).next().is_some());
        spoken.map(move |protocol| {
            let tls = of(protocol).any(|listener| listener.tls.is_some());
            let bytes =
                protocol.connection_bytes_max(&options) + if tls { TLS_CONNECTION_BYTES_MAX } else { 0 };
            let sum = (bytes as u64).saturating_mul(u64::from(connections));
            (sum, format!("for {connections} {} connections", protocol.name()))
        })
    }

    fn otlp_buffers(&self) -> (u64, String) {
        let each = http_limits::HTTP2_CONNECTION_BYTES_MAX + self.tls_bytes();
        let sum = (each * OTLP_CONNECTIONS_MAX) as u64;
        (sum, format!("for {OTLP_CONNECTIONS_MAX} OTLP connections"))
    }

    /// Bytes that TLS takes for a connection of the HTTP ports.
    fn tls_bytes(&self) -> usize {
        if self.access.tls.is_some() { http_limits::TLS_CONNECTION_BYTES_MAX } else { 0 }
    }

    fn http_buffers(&self) -> (u64, String) {
        let plain = if self.schedulers.is_empty() {
            http_limits::CONNECTION_BYTES_MAX
        } else {
            http_limits::HTTP2_CONNECTION_BYTES_MAX
        };
        let sum = (plain + self.tls_bytes()) as u64 * HTTP_CONNECTIONS_MAX as u64;
        (sum, format!("for {HTTP_CONNECTIONS_MAX} HTTP connections"))
    }
}

fn backend_with_store(backend: &BackendConfig) -> String {
    let BackendConfig { name, replicas, .. } = backend;
    match replicas.as_slice() {
        [] => name.clone(),
        [store] => format!("{name} ({})", store.kind()),
        [store, ..] => format!("{name} ({}, {} replicas)", store.kind(), replicas.len()),
    }
}

/// A size with one digit after the point, in MiB or GiB.
fn rounded(bytes: u64) -> String {
    let mebibytes = bytes as f64 / f64::from(1 << 20);
    if mebibytes < 1024.0 { format!("{mebibytes:.1}MiB") } else { format!("{:.1}GiB", mebibytes / 1024.0) }
}
