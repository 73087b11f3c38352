//! Logins whose files are read again when a server refuses them.

use std::sync::Arc;

use sherwood_textfile::Watched;

use crate::Cause;

/// Connects by `connect` with the current `login`. If the server refuses the login, or one of the
/// two peers does not trust the other, and the login's files have changed, connects once more with
/// the new login.
pub(super) async fn retried<T, L, F>(login: &Watched<T>, connect: impl Fn(Arc<T>) -> F) -> Result<L, Cause>
where
    F: Future<Output = Result<L, Cause>>,
{
    let shown = login.current();
    match connect(Arc::clone(&shown)).await {
        Err(cause @ (Cause::Credentials { .. } | Cause::Certificate { .. })) => {
            match login.newer_than(&shown) {
                Some(newer) => connect(newer).await,
                None => Err(cause),
            }
        }
        connected => connected,
    }
}
