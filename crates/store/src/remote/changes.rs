//! Connections of their own to one server, for its part as a duplicate.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::Each;
use super::pipeline::{Answer, Exchange, Operation, Pool, Sent, Session};
use crate::{
    Applied, Attempt, BoxFuture, Cause, ChangeConnection, CopyConnection, Found, Item, ItemPage, KeyChange,
    StoreError, StoreKind, duplicate::marker_key,
};

/// The requests of one protocol about the items of one store. Keys are without the store's prefix.
pub(crate) trait Commands: Clone + Send + Sync + 'static {
    /// The requests in flight.
    type Exchange: Exchange;

    /// The kind of the store.
    const KIND: StoreKind;

    /// Time to live of written values; none if they do not expire.
    fn write_ttl(&self) -> Option<Duration>;

    /// Stores a value.
    ///
    /// # Errors
    /// When the server cannot hold the key or the value.
    fn set(&self, key: &[u8], stored: Stored<'_>) -> Result<Operation<Self::Exchange>, Cause>;

    /// Removes a key; none if the server cannot hold such a key.
    fn delete(&self, key: &[u8]) -> Option<Operation<Self::Exchange>>;

    /// Returns true if the server can hold such a key.
    fn accepts(&self, key: &[u8]) -> bool;

    /// Reads the items of accepted keys, at least one, with their flags and times to live.
    fn read(&self, keys: &[Bytes]) -> Operation<Self::Exchange>;

    /// Returns the results of the keys of a read.
    fn items(outcome: <Self::Exchange as Exchange>::Outcome) -> Vec<Each>;

    /// Asks for the existence of the item of an accepted key.
    fn has(&self, key: &Bytes) -> Operation<Self::Exchange>;

    /// Returns true if the item exists.
    fn is_there(outcome: &<Self::Exchange as Exchange>::Outcome) -> bool;
}

/// A value to store, with its properties.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored<'a> {
    pub(crate) value: &'a [u8],
    pub(crate) flags: u32,
    /// Time to live, more than zero; none if the value does not expire.
    pub(crate) ttl: Option<Duration>,
}

/// A connection of its own to the server of a store.
pub(crate) struct Connection<C: Commands> {
    name: Arc<str>,
    commands: C,
    /// Key of the marker of the partition; empty for a copy.
    marker_key: Bytes,
    /// None while a call is in flight and after a batch has broken: a call that is dropped drops
    /// the session.
    session: Option<Session<C::Exchange>>,
}

/// A change that was sent, or that needs no answer; or the cause why it was not sent.
type Begun<C> = Result<Option<Sent<<C as Commands>::Exchange>>, Cause>;

impl<C: Commands> Connection<C> {
    pub(crate) async fn open(
        name: &Arc<str>,
        commands: &C,
        pool: &Pool<C::Exchange>,
    ) -> Result<Self, StoreError> {
        let session = pool.session().await;
        let session =
            session.map_err(|cause| StoreError::new(Arc::clone(name), C::KIND, Attempt::Connect, cause))?;
        let (name, commands, session) = (Arc::clone(name), commands.clone(), Some(session));
        Ok(Self { name, commands, marker_key: Bytes::new(), session })
    }

    /// Has the connection read and write the marker of a partition.
    pub(crate) fn for_partition(self, partition: u32) -> Self {
        Self { marker_key: marker_key(partition), ..self }
    }

    fn error(&self, attempt: Attempt, cause: Cause) -> StoreError {
        StoreError::new(Arc::clone(&self.name), C::KIND, attempt, cause)
    }

    /// Executes operations in their order, each made when the one before it is in the queue. The
    /// first failure is that of the call.
    async fn call_all(
        &mut self,
        attempt: Attempt,
        operations: impl Iterator<Item = Result<Operation<C::Exchange>, Cause>>,
    ) -> Result<Vec<<C::Exchange as Exchange>::Outcome>, StoreError> {
        let Some(mut session) = self.session.take() else { return Err(self.error(attempt, Cause::Closed)) };
        let outcomes = session.call_all(operations).await;
        self.session = Some(session);
        outcomes.map_err(|cause| self.error(attempt, cause))
    }

    /// Reads the items of keys.
    async fn read_items(&mut self, mut keys: Vec<Bytes>) -> Result<ItemPage, StoreError> {
        let attempt = Attempt::Get { keys: keys.len() };
        keys.retain(|key| self.commands.accepts(key));
        if keys.is_empty() {
            return Ok(ItemPage::default());
        }
        let operation = self.commands.read(&keys);
        let outcomes = self.call_all(attempt, std::iter::once(Ok(operation))).await?;
        let asked = keys.len();
        let mut page = ItemPage::default();
        for (key, each) in keys.into_iter().zip(outcomes.into_iter().flat_map(C::items)) {
            match each {
                Ok(found) => page.items.extend(found.and_then(|found| item(key, found))),
                Err(cause @ Cause::TooLarge { .. }) => {
                    page.left.push(key);
                    // If no value fits, each is too large by itself.
                    if page.left.len() == asked {
                        return Err(self.error(attempt, cause));
                    }
                }
                Err(cause) => return Err(self.error(attempt, cause)),
            }
        }
        Ok(page)
    }

    async fn apply_over(
        &self,
        session: &mut Session<C::Exchange>,
        marker: &[u8],
        changes: &[KeyChange],
    ) -> Applied {
        let stored = Stored { value: marker, flags: 0, ttl: None };
        let marking = match self.commands.set(&self.marker_key, stored) {
            Ok(operation) => session.send(operation).await.answer().await,
            Err(cause) => Answer::Refused(cause),
        };
        match marking {
            Answer::Done(_) => {}
            Answer::Refused(cause) => return Applied::Unmarked(self.error(Attempt::Put, cause)),
            Answer::Ended => return self.broken(0, session).await,
        }
        let mut begun = Vec::with_capacity(changes.len());
        for change in changes {
            begun.push(self.begin(session, change).await);
        }
        let mut refused: Vec<(usize, StoreError)> = Vec::new();
        for (at, (change, begun)) in changes.iter().zip(begun).enumerate() {
            let cause = match begun {
                Ok(None) => continue,
                Ok(Some(sent)) => match sent.answer().await {
                    Answer::Done(_) => continue,
                    Answer::Refused(cause) => cause,
                    Answer::Ended => {
                        return self.broken(refused.first().map_or(at, |(first, _)| *first), session).await;
                    }
                },
                Err(cause) => cause,
            };
            let attempt = if change.value.is_some() { Attempt::Put } else { Attempt::Delete };
            refused.push((at, self.error(attempt, cause)));
        }
        Applied::Answered(refused)
    }

    /// Sends a change.
    async fn begin(&self, session: &Session<C::Exchange>, change: &KeyChange) -> Begun<C> {
        let KeyChange { key, value } = change;
        let operation = match value {
            Some(value) => {
                let stored = Stored { value, flags: 0, ttl: self.commands.write_ttl() };
                Some(self.commands.set(key, stored)?)
            }
            None => self.commands.delete(key),
        };
        Ok(match operation {
            Some(operation) => Some(session.send(operation).await),
            None => None,
        })
    }

    async fn broken(&self, made: usize, session: &mut Session<C::Exchange>) -> Applied {
        Applied::Broken { made, error: self.error(Attempt::Put, session.ended().await) }
    }
}

/// Makes an item of a value that was read; none if it is about to expire, or was absent when its
/// time to live was read.
fn item(key: Bytes, found: Found) -> Option<Item> {
    let Found { value, flags, good_for: ttl, tags: _ } = found;
    (ttl != Some(Duration::ZERO)).then_some(Item { key, value, flags, ttl })
}

impl<C: Commands> ChangeConnection for Connection<C> {
    fn marker(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>> {
        Box::pin(async move {
            let page = self.read_items(vec![self.marker_key.clone()]).await?;
            Ok(page.items.into_iter().next().map(|item| item.value))
        })
    }

    fn apply(&mut self, marker: Bytes, changes: Vec<KeyChange>) -> BoxFuture<'_, Applied> {
        Box::pin(async move {
            let Some(mut session) = self.session.take() else {
                return Applied::Broken { made: 0, error: self.error(Attempt::Put, Cause::Closed) };
            };
            let applied = self.apply_over(&mut session, &marker, &changes).await;
            if !matches!(applied, Applied::Broken { .. }) {
                self.session = Some(session);
            }
            applied
        })
    }

    fn ended(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Some(session) = &mut self.session {
                session.ended().await;
            }
        })
    }
}

impl<C: Commands> CopyConnection for Connection<C> {
    fn read(&mut self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<ItemPage, StoreError>> {
        Box::pin(self.read_items(keys))
    }

    fn has(&mut self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<Vec<bool>, StoreError>> {
        Box::pin(async move {
            let commands = self.commands.clone();
            let accepted = keys.iter().filter(|key| commands.accepts(key));
            let operations = accepted.map(|key| Ok(commands.has(key)));
            let mut outcomes =
                self.call_all(Attempt::Get { keys: keys.len() }, operations).await?.into_iter();
            let mut is_there = || outcomes.next().is_some_and(|outcome| C::is_there(&outcome));
            Ok(keys.iter().map(|key| commands.accepts(key) && is_there()).collect())
        })
    }

    fn fill(&mut self, items: Vec<Item>) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let commands = self.commands.clone();
            let operations = items.iter().map(|Item { key, value, flags, ttl }| {
                commands.set(key, Stored { value, flags: *flags, ttl: *ttl })
            });
            self.call_all(Attempt::Put, operations).await.map(drop)
        })
    }

    fn remove(&mut self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let commands = self.commands.clone();
            let operations = keys.iter().filter_map(|key| commands.delete(key).map(Ok));
            self.call_all(Attempt::Delete, operations).await.map(drop)
        })
    }
}
