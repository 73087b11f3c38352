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
    /// The node refuses a value.
    #[error("nothing was changed: {0}")]
    Refused(String),
}

/// The result of a reload: the settings that were changed.
pub type Reloaded = Result<Vec<String>, ReloadError>;

/// A request of the admin API for a reload; its answer is sent back.
pub type ReloadRequest = oneshot::Sender<Reloaded>;

/// Requests of the admin API for reloads that wait for the process that reads the file.
#[derive(Debug, Default)]
pub(crate) struct ReloadRequests(Mutex<Option<mpsc::Sender<ReloadRequest>>>);

/// Reloads that may wait at a time.
const WAITING_MAX: usize = 4;

impl ReloadRequests {
    /// Asks for a reload; none if nobody reads a file for this node, or too many wait.
    pub(crate) async fn ask(&self) -> Option<Reloaded> {
        let sender = self.0.lock().expect("no panics while held").clone()?;
        let (answer, answered) = oneshot::channel();
        sender.try_send(answer).ok()?;
        answered.await.ok()
    }

    /// Returns the receiver of further requests.
    pub(crate) fn receive(&self) -> mpsc::Receiver<ReloadRequest> {
        let (sender, requests) = mpsc::channel(WAITING_MAX);
        *self.0.lock().expect("no panics while held") = Some(sender);
        requests
    }
}
