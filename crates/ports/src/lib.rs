//! The daemon's ports: sockets that were passed, TLS, tokens and passwords, and the HTTP server.
//!
//! | module | contents |
//! |---|---|
//! | `access` | tokens, passwords and origins, and the files that hold them |
//! | `http` | an HTTP server within its bounds, bodies of requests, and the form of answers |
//! | `passed` | listening sockets that another process opened |
//! | `tls` | certificates of HTTP ports and of listeners |
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a driver: it owns sockets, files and clocks"
)]

pub mod access;
pub mod http;
mod passed;
pub mod tls;

pub use passed::{PassedError, PassedSockets};
