//! A session with a ZooKeeper server over one connection.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use tokio::time::timeout;
use zookeeper_client::{Client, CreateOptions, Error, SessionState};

use super::PROTOCOL;
use super::error::cause;
use super::name::{KEY_BYTES_MAX, encode};
use super::task::Task;
use crate::remote::requests::Requests;
use crate::{Cause, KeyChange, StoreKind};

/// Most bytes of a request that a server accepts by default (`jute.maxbuffer`). It closes the
/// connection that sends more.
const PACKET_BYTES_MAX: usize = 0xf_ffff;

/// Bytes of a request beside path and value, with some reserve.
const PACKET_OVERHEAD: usize = 128;

/// Most attempts to store a value, each of which replaces or creates the node.
const PUT_ATTEMPTS: usize = 4;

/// A session, which ends with its connection. Dropping it closes the connection.
#[derive(Clone)]
pub(super) struct Session(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) client: Client,
    pub(super) address: String,
    /// The path of the node whose children are the items.
    pub(super) root: Arc<str>,
    /// The mode and access rights of nodes that are created.
    pub(super) create: CreateOptions<'static>,
    pub(super) value_bytes_max: usize,
    pub(super) answer_timeout: Duration,
    pub(super) task: Task,
}

impl Session {
    /// Returns the session's number and the number of items.
    pub(super) async fn describe(&self) -> Result<String, Cause> {
        let items = match self.0.answer(self.0.client.check_stat(&self.0.root)).await? {
            Ok(stat) => stat.map_or(0, |stat| stat.num_children),
            Err(error) => return Err(cause(&error, &self.0.address)),
        };
        Ok(format!("session {:x}, {}: {items} nodes", self.0.client.session_id().0, self.0.root))
    }

    /// Returns the names of all nodes of the store and of others below its root.
    pub(super) async fn names(&self) -> Result<Vec<String>, Cause> {
        match self.0.answer(self.0.client.list_children(&self.0.root)).await? {
            Err(Error::NoNode) => Ok(Vec::new()),
            names => names.map_err(|error| cause(&error, &self.0.address)),
        }
    }
}

impl Inner {
    /// Waits for the answer to a request.
    async fn answer<T>(
        &self,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<Result<T, Error>, Cause> {
        // The library panics when it decodes an answer that is too short.
        match timeout(self.answer_timeout, AssertUnwindSafe(request).catch_unwind()).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(Cause::Protocol {
                address: self.address.clone(),
                expected: PROTOCOL,
                detail: "an answer that is too short".to_owned(),
            }),
            Err(_) => Err(Cause::unanswered(&self.address, self.answer_timeout)),
        }
    }

    fn path(&self, key: &[u8]) -> String {
        format!("{}/{}", self.root, encode(key))
    }

    /// Returns the path of a key whose value may be stored.
    fn checked(&self, key: &[u8], value: &[u8]) -> Result<String, Cause> {
        let refused = |what, bytes, max| Err(Cause::Refused { what, bytes, min: 0, max });
        if key.len() > KEY_BYTES_MAX {
            return refused("key", key.len(), KEY_BYTES_MAX);
        }
        let path = self.path(key);
        let max = self.value_bytes_max.min(PACKET_BYTES_MAX - PACKET_OVERHEAD - path.len());
        if value.len() > max { refused("value", value.len(), max) } else { Ok(path) }
    }

    async fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Cause> {
        let path = self.checked(key, value)?;
        let failed = |error| Err(cause(&error, &self.address));
        for _ in 0..PUT_ATTEMPTS {
            match self.answer(self.client.set_data(&path, value, None)).await? {
                Ok(_) => return Ok(()),
                Err(Error::NoNode) => {}
                Err(error) => return failed(error),
            }
            match self.answer(self.client.create(&path, value, &self.create)).await? {
                Ok(_) => return Ok(()),
                Err(Error::NodeExists) => {}
                Err(Error::NoNode) => match self.answer(self.client.mkdir(&self.root, &self.create)).await? {
                    Ok(()) => {}
                    Err(error) => return failed(error),
                },
                Err(error) => return failed(error),
            }
        }
        let detail = format!("the node {path} was created and removed by others {PUT_ATTEMPTS} times");
        Err(Cause::Busy { detail })
    }

    async fn delete(&self, key: &[u8]) -> Result<(), Cause> {
        if key.len() > KEY_BYTES_MAX {
            return Ok(());
        }
        match self.answer(self.client.delete(&self.path(key), None)).await? {
            Ok(()) | Err(Error::NoNode) => Ok(()),
            Err(error) => Err(cause(&error, &self.address)),
        }
    }
}

impl Requests for Session {
    const KIND: StoreKind = StoreKind::Zookeeper;

    fn get(&self, key: &Bytes) -> impl Future<Output = Result<Option<Bytes>, Cause>> + Send + use<> {
        let (session, key) = (Arc::clone(&self.0), key.clone());
        async move {
            if key.len() > KEY_BYTES_MAX {
                return Ok(None);
            }
            match session.answer(session.client.get_data(&session.path(&key))).await? {
                Ok((value, _)) => Ok(Some(value.into())),
                Err(Error::NoNode) => Ok(None),
                Err(error) => Err(cause(&error, &session.address)),
            }
        }
    }

    fn has(&self, key: &Bytes) -> impl Future<Output = Result<bool, Cause>> + Send + use<> {
        let (session, key) = (Arc::clone(&self.0), key.clone());
        async move {
            if key.len() > KEY_BYTES_MAX {
                return Ok(false);
            }
            let stat = session.answer(session.client.check_stat(&session.path(&key))).await?;
            stat.map(|stat| stat.is_some()).map_err(|error| cause(&error, &session.address))
        }
    }

    fn make(&self, change: KeyChange) -> impl Future<Output = Result<(), Cause>> + Send + use<> {
        let session = Arc::clone(&self.0);
        async move {
            match change.value {
                Some(value) => session.put(&change.key, &value).await,
                None => session.delete(&change.key).await,
            }
        }
    }

    fn is_open(&self) -> bool {
        self.0.client.state() == SessionState::SyncConnected && !self.0.task.has_ended()
    }

    async fn ended(&self) {
        let mut states = self.0.client.state_watcher();
        while self.is_open() {
            states.changed().await;
        }
    }
}
