//! Counters, times, errors and events of the node, and their export as metrics and logs.

pub(crate) mod errors;
pub(crate) mod events;
pub(crate) mod history;
pub(crate) mod metrics;
pub(crate) mod recording;
pub(crate) mod shadow;
pub(crate) mod telemetry;
pub(crate) mod times;
pub(crate) mod unread;
