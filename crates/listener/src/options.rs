//! The options of a listener.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use sherwood_wire::memcached::Limits;
use thiserror::Error;

use super::address::Address;

/// Most databases of a Redis listener, Redis's default.
pub const DATABASES_MAX: u8 = 16;

/// The way in which the threads of listeners receive and send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Io {
    /// In rounds by io_uring where the system has it, and else by calls for each connection.
    #[default]
    Auto,
    /// By calls for each connection, when epoll reports it.
    Epoll,
    /// In rounds by io_uring; a listener does not start without it.
    IoUring,
}

impl Io {
    /// All ways by name, the default first.
    pub const ALL: [(&str, Self); 3] =
        [("auto", Self::Auto), ("epoll", Self::Epoll), ("io_uring", Self::IoUring)];
}

/// Options of a memcached or Redis listener. The defaults are memcached's if it has the option.
///
/// A connection has buffers only for unfinished work: an incomplete command, up to the longest
/// command ([`Limits::buffer_bytes_max`]), and output that its client has not read, up to
/// `output_bytes_max` and one more value, in a buffer that doubles when it grows, or several large
/// values, in a buffer no larger than that. An idle client has neither. A read-through listener
/// also holds up to [`FETCH_KEYS_MAX`](super::FETCH_KEYS_MAX) fetched values per connection, within
/// the budget of its process.
///
/// Timeouts of connections are checked once per timeout, so they fire after one to two of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerOptions {
    /// The address or UNIX socket to listen on.
    pub bind: Address,
    /// Threads, each with its own socket and event queue; 1 to 1,024, default 4.
    pub threads: usize,
    /// Pins each thread to one of the cores the process may use, in turn; default no. Pays if the
    /// listener has a core per thread and nothing else runs on them; otherwise threads wait for
    /// busy cores.
    pub pin_threads: bool,
    /// Serves several connections that are ready in one system call, by io_uring; default no. TLS
    /// connections are served one by one. See [`rounds_available`](super::rounds_available).
    pub rounds: bool,
    /// Maximum length of a value in bytes, at least 1, default 1 MiB; not more than the cache's.
    pub item_size_max: u32,
    /// Number of databases that clients of Redis can select, 1 to [`DATABASES_MAX`]; default 1.
    /// More than one only on a look-aside listener.
    pub databases: u8,
    /// Output above which a connection executes nothing until the client has read, in bytes; at
    /// least 1, default 64 KiB.
    pub output_bytes_max: usize,
    /// Time without input after which a connection is closed; default none: never.
    pub idle_timeout: Option<Duration>,
    /// Time without progress of pending output after which a connection is closed; default 30 s.
    pub write_timeout: Duration,
    /// Time within which a client has to log in, if a password is required; default 10 s.
    pub login_timeout: Duration,
    /// Time that connections have to finish commands in progress when the listener stops; default 5
    /// s.
    pub drain_timeout: Duration,
}

impl Default for ListenerOptions {
    fn default() -> Self {
        Self {
            bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 11211)).into(),
            threads: 4,
            pin_threads: false,
            rounds: false,
            item_size_max: 1 << 20,
            databases: 1,
            output_bytes_max: 64 * 1024,
            idle_timeout: None,
            write_timeout: Duration::from_secs(30),
            login_timeout: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(5),
        }
    }
}

/// The error of an invalid listener option.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum OptionsError {
    /// A number is out of range.
    #[error("a memcached listener on {bind} was to have {name} = {value}; it has to be {accepted}")]
    Range {
        /// Address of the listener with the option.
        bind: Address,
        /// Name of the option that is out of range.
        name: &'static str,
        /// The value given for the option.
        value: String,
        /// The range that the option accepts.
        accepted: &'static str,
    },
}

impl ListenerOptions {
    /// Checks the range of every option.
    ///
    /// # Errors
    /// The first that is out of range.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let Self {
            bind,
            threads,
            pin_threads: _,
            rounds: _,
            item_size_max,
            databases,
            output_bytes_max,
            idle_timeout,
            write_timeout,
            login_timeout,
            drain_timeout: _,
        } = self;
        let refuse = |name, value: String, accepted| {
            Err(OptionsError::Range { bind: bind.clone(), name, value, accepted })
        };
        if !(1..=1024).contains(threads) {
            return refuse("threads", threads.to_string(), "1 to 1024");
        }
        if !(1..=1 << 30).contains(item_size_max) {
            return refuse("item_size_max", item_size_max.to_string(), "1 byte to 1 GiB");
        }
        if !(1..=DATABASES_MAX).contains(databases) {
            return refuse("databases", databases.to_string(), "1 to 16");
        }
        if *output_bytes_max == 0 {
            return refuse("output_bytes_max", output_bytes_max.to_string(), "at least 1");
        }
        if *idle_timeout == Some(Duration::ZERO) {
            return refuse("idle_timeout", "0".to_owned(), "longer than nothing, or not given");
        }
        if *write_timeout == Duration::ZERO {
            return refuse("write_timeout", "0".to_owned(), "longer than nothing");
        }
        if *login_timeout == Duration::ZERO {
            return refuse("login_timeout", "0".to_owned(), "longer than nothing");
        }
        Ok(())
    }

    pub(super) fn limits(&self) -> Limits {
        Limits { value_bytes_max: self.item_size_max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_listener_options_are_valid_and_each_option_out_of_range_is_named() {
        let ok = ListenerOptions::default();
        assert_eq!(ok.validate(), Ok(()));
        let wrong = [
            ("threads", ListenerOptions { threads: 0, ..ok.clone() }),
            ("item_size_max", ListenerOptions { item_size_max: 0, ..ok.clone() }),
            ("databases", ListenerOptions { databases: 17, ..ok.clone() }),
            ("output_bytes_max", ListenerOptions { output_bytes_max: 0, ..ok.clone() }),
            ("idle_timeout", ListenerOptions { idle_timeout: Some(Duration::ZERO), ..ok.clone() }),
            ("write_timeout", ListenerOptions { write_timeout: Duration::ZERO, ..ok.clone() }),
            ("login_timeout", ListenerOptions { login_timeout: Duration::ZERO, ..ok }),
        ];
        for (name, options) in wrong {
            let error = options.validate().unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("127.0.0.1:11211"), "{error}");
        }
    }
}
