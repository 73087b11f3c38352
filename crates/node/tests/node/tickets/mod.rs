//! The service of tickets on real sockets, called by the generated client, and by nodes.

mod client;
mod service;
mod support;
