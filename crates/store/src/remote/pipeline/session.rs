//! A connection of its own, for operations whose order matters.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::connection::{open, run_opened};
use super::{Counted, Exchange, Failed, Operation, Pool, QUEUE_MAX, Queued};
use crate::Cause;
use crate::remote::host::HostPort;
use crate::remote::socket::Io;

/// A connection that is used by one caller and not replaced when it ends.
///
/// Its operations are sent in their order, pipelined, and never a second time. The connection ends
/// if the server does not answer within the answer timeout. Dropping the session ends it as well,
/// so that no operation in its queue is sent any more, and no answer can be taken for another.
pub(crate) struct Session<E: Exchange> {
    queue: mpsc::Sender<Queued<E>>,
    task: JoinHandle<Cause>,
    /// The cause of the end, once the task has returned it.
    ended: Option<Cause>,
    weight: Arc<AtomicUsize>,
}

/// The result of an operation of a session.
pub(crate) enum Answer<E: Exchange> {
    /// The server has executed the operation.
    Done(E::Outcome),
    /// The server has refused the operation.
    Refused(Cause),
    /// The connection ended before the answer: the operation may have been executed or not.
    Ended,
}

/// An operation that a session has taken.
pub(crate) struct Sent<E: Exchange>(Option<oneshot::Receiver<Result<E::Outcome, Failed<E>>>>);

impl<E: Exchange> Sent<E> {
    /// Waits for the answer.
    pub(crate) async fn answer(self) -> Answer<E> {
        let Some(reply) = self.0 else { return Answer::Ended };
        match reply.await {
            Ok(Ok(outcome)) => Answer::Done(outcome),
            Ok(Err(Failed::Cause(cause))) => Answer::Refused(cause),
            Ok(Err(Failed::Ended(_) | Failed::Returned { .. })) | Err(_) => Answer::Ended,
        }
    }
}

impl<E: Exchange> Session<E> {
    /// Puts an operation into the queue, once there is room.
    pub(crate) async fn send(&self, operation: Operation<E>) -> Sent<E> {
        let counted = Counted::new(&self.weight, operation.weight);
        let (reply, answer) = oneshot::channel();
        let is_sent = self.queue.send(Queued { operation, reply, _counted: counted }).await.is_ok();
        Sent(is_sent.then_some(answer))
    }

    /// Executes one operation.
    ///
    /// # Errors
    /// The server's refusal, or the cause of the end of the connection.
    pub(crate) async fn call(&mut self, operation: Operation<E>) -> Result<E::Outcome, Cause> {
        match self.send(operation).await.answer().await {
            Answer::Done(outcome) => Ok(outcome),
            Answer::Refused(cause) => Err(cause),
            Answer::Ended => Err(self.ended().await),
        }
    }

    /// Executes operations in their order, without waiting for the answer to one before the next.
    ///
    /// # Errors
    /// The first refusal, of the server or in place of an operation, or the cause of the end of the
    /// connection.
    pub(crate) async fn call_all(
        &mut self,
        operations: impl Iterator<Item = Result<Operation<E>, Cause>>,
    ) -> Result<Vec<E::Outcome>, Cause> {
        let mut sent = Vec::new();
        for operation in operations {
            sent.push(self.send(operation?).await);
        }
        let mut outcomes = Vec::with_capacity(sent.len());
        for one in sent {
            match one.answer().await {
                Answer::Done(outcome) => outcomes.push(outcome),
                Answer::Refused(cause) => return Err(cause),
                Answer::Ended => return Err(self.ended().await),
            }
        }
        Ok(outcomes)
    }

    /// Waits for the end of the connection and returns its cause. May be dropped and called again.
    pub(crate) async fn ended(&mut self) -> Cause {
        if self.ended.is_none() {
            // The task fails only when the runtime shuts down.
            self.ended = Some((&mut self.task).await.unwrap_or(Cause::Closed));
        }
        self.ended.clone().unwrap_or(Cause::Closed)
    }
}

impl<E: Exchange> Drop for Session<E> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<E: Exchange> Pool<E> {
    /// Address of the server.
    pub(crate) fn address(&self) -> &HostPort {
        &self.link.endpoint.address
    }

    /// Opens a connection with its greeting, which is not one of the pool's and not counted there.
    ///
    /// # Errors
    /// When the server cannot be reached, or refuses the greeting.
    pub(crate) async fn session(&self) -> Result<Session<E>, Cause> {
        let driver = open(&self.link).await?;
        let (queue, operations) = mpsc::channel(QUEUE_MAX);
        let link = Arc::clone(&self.link);
        let task = tokio::spawn(async move { run_opened(driver, &link, operations).await });
        Ok(Session { queue, task, ended: None, weight: Arc::default() })
    }

    /// Opens a connection as [`session`](Self::session) does, and returns its socket.
    ///
    /// # Errors
    /// As [`session`](Self::session).
    pub(crate) async fn socket(&self) -> Result<Box<dyn Io>, Cause> {
        Ok(open(&self.link).await?.into_io())
    }
}

#[cfg(test)]
mod tests;
