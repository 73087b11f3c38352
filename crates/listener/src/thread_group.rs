//! The threads of a listener: the number of clients of each, and connections handed over.
//!
//! The system spreads connections over sockets by a hash, so that one of two threads may get thirty
//! of fifty and be busy while the other one idles. So a thread that accepts a connection hands it
//! to the thread with the fewest clients. A client stays on its thread.

use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use super::mailbox::Mailbox;
use super::shared::ConnectionPermit;
use super::sockets::Signal;

/// All threads of a listener, by their numbers.
pub(super) struct ThreadGroup<S> {
    members: Box<[Member<S>]>,
    stopping: AtomicBool,
}

struct Member<S> {
    mailbox: Arc<Mailbox>,
    /// Wakes the thread to take the connections handed over to it.
    arrival: Waker,
    /// Wakes the thread because the listener is to stop.
    stop: Waker,
    /// The number of the thread's clients, new connections included.
    clients: AtomicUsize,
    /// Connections handed over that the thread has not taken yet; at most the limit on connections.
    new_connections: Mutex<Vec<NewConnection<S>>>,
}

/// An accepted connection that is handed over to its thread.
pub(super) struct NewConnection<S> {
    pub(super) socket: S,
    pub(super) permit: ConnectionPermit,
}

impl<S> ThreadGroup<S> {
    /// Creates a group with one thread for each signal. A thread is woken with the token
    /// `new_connections` when connections were handed over to it, and with `stop` when the listener
    /// is to stop.
    pub(super) fn new(
        signals: impl IntoIterator<Item = Arc<dyn Signal>>,
        new_connections: u64,
        stop: u64,
    ) -> Self {
        let member = |signal| {
            let mailbox = Mailbox::new(signal);
            let (arrival, stop) = (mailbox.waker(new_connections), mailbox.waker(stop));
            Member { mailbox, arrival, stop, clients: AtomicUsize::new(0), new_connections: Mutex::default() }
        };
        Self { members: signals.into_iter().map(member).collect(), stopping: AtomicBool::new(false) }
    }

    /// Returns the mailbox with the wake-ups of a thread.
    pub(super) fn mailbox(&self, number: usize) -> &Arc<Mailbox> {
        &self.members[number].mailbox
    }

    /// Chooses the thread of a client that thread `number` accepted, and counts the client there:
    /// the thread with the fewest clients, preferably `number` itself. Two threads that choose at
    /// the same time may choose the same one.
    pub(super) fn choose_thread(&self, number: usize) -> usize {
        let clients = |number: usize| self.members[number].clients.load(Relaxed);
        let fewest =
            (0..self.members.len()).min_by_key(|&other| (clients(other), other != number)).unwrap_or(number);
        self.members[fewest].clients.fetch_add(1, Relaxed);
        fewest
    }

    /// Gives a client to the thread that was [chosen](Self::choose_thread).
    pub(super) fn hand_over(&self, to: usize, connection: NewConnection<S>) {
        let member = &self.members[to];
        member.new_connections.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        member.arrival.wake_by_ref();
    }

    /// Takes the connections that were handed to a thread.
    pub(super) fn new_connections(&self, number: usize) -> Vec<NewConnection<S>> {
        std::mem::take(
            &mut *self.members[number].new_connections.lock().unwrap_or_else(PoisonError::into_inner),
        )
    }

    /// Wakes every thread because the listener is to stop.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Release);
        self.members.iter().for_each(|member| member.stop.wake_by_ref());
    }

    /// Returns true if the listener is to stop.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Acquire)
    }

    /// Records that a client of a thread has gone.
    pub(super) fn remove_client(&self, number: usize) {
        self.members[number].clients.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Wake;

    #[test]
    fn new_client_goes_to_the_thread_with_fewest_clients_or_stays_on_a_tie() {
        let signals = (0..3).map(|_| Wake::new().unwrap() as Arc<dyn Signal>);
        let group: ThreadGroup<()> = ThreadGroup::new(signals, 7, 8);
        let chosen: Vec<usize> = (0..6).map(|_| group.choose_thread(1)).collect();
        assert_eq!(chosen, [1, 0, 2, 1, 0, 2]);
        group.remove_client(2);
        assert_eq!((group.choose_thread(0), group.choose_thread(0)), (2, 0));
    }
}
