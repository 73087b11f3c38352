//! Stores on other machines: each owns its connections and turns what its server says into values and causes.
//!
//! What they have in common: a connection is made when a call needs one, and the number of them is bounded. One that failed or whose
//! caller went away amid a call is closed and never used again, since nobody knows what it would say next. Connecting has a
//! time-out of its own; how long a call may take is its caller's business, who drops it. An answer that grows beyond
//! `value_max` is not read on.

mod address;
pub(crate) mod secret;
pub(crate) mod sql;
mod template;
pub(crate) mod tls;
