//! A request before a run that shows whether a backend has keys of a form.

use super::Options;
use super::client::{Answer, Client, Status};
use super::requests::one_query;
use crate::LoadError;

/// Asks the gateway's `backend` for `keys`, and returns how many of them it has. A request that
/// fails finds none: the run that follows reports the failure.
///
/// # Errors
/// When the gateway accepts no connection.
pub fn found(options: &Options, backend: &str, keys: Vec<String>) -> Result<usize, LoadError> {
    let system = |source| LoadError::System { source };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(system)?;
    runtime.block_on(async {
        let client = Client::connect(options).await?;
        let answer = tokio::time::timeout(options.timeout, client.post(one_query(backend, keys))).await;
        let Ok(Ok(body)) = answer else { return Ok(0) };
        let found = |status| matches!(status, Status::Hit | Status::Miss | Status::Stale);
        let count = |answer: Answer<'_>| answer.results.iter().filter(|key| found(key.status)).count();
        Ok(Answer::parse(&body).map_or(0, count))
    })
}
