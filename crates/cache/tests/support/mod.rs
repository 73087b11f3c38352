//! Helpers of the integration tests.

pub(crate) mod exact_lru;
