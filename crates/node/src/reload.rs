//! Reloads of the configuration: on SIGHUP and by `POST /v1/reload`.
//!
//! The process that started the node reads the file and calls `Node::reload`; requests of the admin
//! API reach it through [`ReloadRequests`]. A reload changes everything that it names, or nothing.

use std::sync::Mutex;

use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

/// Reason for which nothing was changed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ReloadError {
    /// The file cannot be read, or is not valid.
    #[error("{0}")]
    Invalid(String),
    /// Settings differ that a running node cannot change.
    #[error("nothing was changed: a restart is needed for {}", .0.join(", "))]
    NeedsRestart(Vec<String>),
    /// The file has no listener, so all listeners would be removed.
    #[error(
        "nothing was changed: the file has no listener, so all would be removed and their clients disconnected; \
         give it a [[listener]], or ask for it by POST /v1/reload?remove_all_listeners=true"
    )]
    RemovesAllListeners,
    /// The node refuses a value.
    #[error("nothing was changed: {0}")]
    Refused(String),
}

/// The result of a reload: the settings that were changed.
pub type Reloaded = Result<Vec<String>, ReloadError>;

/// Options of a reload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReloadOptions {
    /// True if a configuration file without listeners may remove all listeners of the node.
    /// Otherwise such a reload is refused, because a file truncated by mistake has no listeners
    /// either.
    pub may_remove_all_listeners: bool,
}

/// A request for a reload, received by the admin API.
#[derive(Debug)]
pub struct ReloadRequest {
    /// The options of the reload.
    pub options: ReloadOptions,
    /// The channel that returns the result to the client.
    pub answer: oneshot::Sender<Reloaded>,
}

/// Requests of the admin API for reloads that wait for the process that reads the file.
#[derive(Debug, Default)]
pub(crate) struct ReloadRequests(Mutex<Option<mpsc::Sender<ReloadRequest>>>);

/// Reloads that may wait at a time.
const WAITING_MAX: usize = 4;

impl ReloadRequests {
    /// Requests a reload and waits for its result; returns none if no receiver takes the requests
    /// of this node, or too many requests wait.
    pub(crate) async fn ask(&self, options: ReloadOptions) -> Option<Reloaded> {
        let sender = self.0.lock().expect("no panics while held").clone()?;
        let (answer, answered) = oneshot::channel();
        sender.try_send(ReloadRequest { options, answer }).ok()?;
        answered.await.ok()
    }

    /// Returns the receiver of further requests.
    pub(crate) fn receive(&self) -> mpsc::Receiver<ReloadRequest> {
        let (sender, requests) = mpsc::channel(WAITING_MAX);
        *self.0.lock().expect("no panics while held") = Some(sender);
        requests
    }
}
