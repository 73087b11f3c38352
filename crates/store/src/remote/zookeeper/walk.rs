//! A walk through the keys of one store on a ZooKeeper server.

use std::sync::Arc;

use bytes::Bytes;

use super::name::decode;
use super::session::Session;
use crate::{Attempt, BoxFuture, KeyPages, PAGE_KEYS_MAX, StoreError, StoreKind, is_reserved};

/// A walk through the children of the store's root. The server returns all names in one answer,
/// and they are held until they are returned.
pub(super) struct Walk {
    name: Arc<str>,
    session: Session,
    /// Names that are not returned yet; none before the server was asked.
    names: Option<Vec<String>>,
}

impl Walk {
    pub(super) fn new(name: Arc<str>, session: Session) -> Self {
        Self { name, session, names: None }
    }

    /// Removes keys from the names that were received.
    fn page(&mut self) -> Vec<Bytes> {
        let mut page = Vec::new();
        let names = self.names.iter_mut().flat_map(|names| std::iter::from_fn(|| names.pop()));
        let own = names.filter_map(|name| decode(&name)).filter(|key| !is_reserved(key));
        page.extend(own.take(PAGE_KEYS_MAX));
        page
    }
}

impl KeyPages for Walk {
    fn next_page(&mut self) -> BoxFuture<'_, Result<Option<Vec<Bytes>>, StoreError>> {
        Box::pin(async move {
            if self.names.is_none() {
                let names = self.session.names().await;
                self.names = Some(names.map_err(|cause| {
                    StoreError::new(Arc::clone(&self.name), StoreKind::Zookeeper, Attempt::Walk, cause)
                })?);
            }
            let page = self.page();
            Ok((!page.is_empty()).then_some(page))
        })
    }
}
