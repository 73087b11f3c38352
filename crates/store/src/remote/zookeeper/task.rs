//! The task of a session.

use std::pin::{Pin, pin};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;

use tokio::task::JoinHandle;
use zookeeper_client::{Client, SessionState};

/// The work of a session, as the library makes it.
type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Takes the work of a session from the library.
#[derive(Default)]
pub(super) struct Spawner(Mutex<Option<Work>>);

impl Spawner {
    /// Polls a future that may start the work.
    pub(super) async fn run<F: Future>(&self, connecting: F) -> F::Output {
        let mut connecting = pin!(connecting);
        std::future::poll_fn(|cx| -> Poll<F::Output> {
            let _scope = spawns_core::enter(self);
            connecting.as_mut().poll(cx)
        })
        .await
    }

    /// Starts the task of the session of `client`, which ends with its connection. The library
    /// would connect again and send what waits in its queue, perhaps after later changes of another
    /// connection. The end is looked for before each step of the library, so that it cannot do so.
    pub(super) fn start(self, client: &Client) -> Task {
        let work = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut states = client.state_watcher();
        let mut state = client.state();
        Task(tokio::spawn(async move {
            let ended = async {
                while state == SessionState::SyncConnected {
                    state = states.changed().await;
                }
            };
            tokio::select! {
                biased;
                () = ended => {}
                () = async { if let Some(work) = work { work.await } } => {}
            }
        }))
    }
}

impl spawns_core::Spawn for Spawner {
    fn spawn(&self, task: spawns_core::Task) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::into_pin(task.future));
    }
}

/// The task of a session, which ends when it is dropped.
pub(super) struct Task(JoinHandle<()>);

impl Task {
    /// Returns true if the session has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.0.is_finished()
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
