//! Tests of the ticket service on real sockets, called by the generated client and by nodes.

mod client;
mod service;
mod support;
