//! A walk through the keys of one table.

use std::sync::Arc;

use bytes::Bytes;
use scylla::response::PagingState;

use super::rows::Rows;
use crate::{Attempt, BoxFuture, Cause, KeyPages, StoreError, StoreKind, is_reserved};

/// A walk through the rows of a table.
pub(super) struct Walk {
    name: Arc<str>,
    rows: Rows,
    /// The state for the next page; none after the last.
    state: Option<PagingState>,
}

impl Walk {
    pub(super) fn new(name: Arc<str>, rows: Rows) -> Self {
        Self { name, rows, state: Some(PagingState::start()) }
    }

    /// Asks for pages until there is one with keys of items, or no more.
    async fn next(&mut self) -> Result<Option<Vec<Bytes>>, Cause> {
        while let Some(state) = self.state.take() {
            let (mut keys, next) = self.rows.page(state).await?;
            self.state = next;
            keys.retain(|key| !is_reserved(key));
            if !keys.is_empty() {
                return Ok(Some(keys));
            }
        }
        Ok(None)
    }
}

impl KeyPages for Walk {
    fn next_page(&mut self) -> BoxFuture<'_, Result<Option<Vec<Bytes>>, StoreError>> {
        Box::pin(async move {
            let page = self.next().await;
            page.map_err(|cause| {
                StoreError::new(Arc::clone(&self.name), StoreKind::Cassandra, Attempt::Walk, cause)
            })
        })
    }
}
