//! The caller's span, which requests to HTTP services name.

use hyper::header::{HeaderName, HeaderValue};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

tokio::task_local! {
    static CALLER: HeaderValue;
}

/// Runs a call of a store, whose requests to HTTP services carry `header` as their `traceparent`
/// (W3C trace context). Other stores have no place for it.
pub async fn with_traceparent<F: Future>(header: HeaderValue, call: F) -> F::Output {
    CALLER.scope(header, call).await
}

/// Returns the header of the call that this task runs.
pub(super) fn header() -> Option<(HeaderName, HeaderValue)> {
    CALLER.try_with(|header| (TRACEPARENT, header.clone())).ok()
}
