//! The threads of a listener: the number of clients of each, connections handed over, and checks
//! that they are alive.
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
    /// Wakes the thread to answer a check.
    check: Waker,
    /// True once the thread has answered the last check.
    checked: AtomicBool,
    /// The number of the thread's clients, new connections included.
    clients: AtomicUsize,
    /// Connections handed over that the thread has not taken yet; at most the limit on connections.
    new_connections: Mutex<Vec<NewConnection<S>>>,
}

/// Tokens of the wake-ups of a thread.
#[derive(Clone, Copy)]
pub(super) struct WakeTokens {
    /// Connections were handed over to the thread.
    pub(super) new_connections: u64,
    /// The listener is to stop.
    pub(super) stop: u64,
    /// The thread has to [answer a check](ThreadGroup::answer_check).
    pub(super) check: u64,
}

/// An accepted connection that is handed over to its thread.
pub(super) struct NewConnection<S> {
    pub(super) socket: S,
    pub(super) permit: ConnectionPermit,
}

impl<S> ThreadGroup<S> {
    /// Creates a group with one thread for each signal, woken with these tokens.
    pub(super) fn new(signals: impl IntoIterator<Item = Arc<dyn Signal>>, tokens: WakeTokens) -> Self {
        let member = |signal| {
            let mailbox = Mailbox::new(signal);
            Member {
                arrival: mailbox.waker(tokens.new_connections),
                stop: mailbox.waker(tokens.stop),
                check: mailbox.waker(tokens.check),
                checked: AtomicBool::new(true),
                clients: AtomicUsize::new(0),
                new_connections: Mutex::default(),
                mailbox,
            }
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

    /// Returns true if the listener is to stop.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Acquire)
    }

    /// Records that a thread has answered the last check.
    pub(super) fn answer_check(&self, number: usize) {
        self.members[number].checked.store(true, Relaxed);
    }

    /// Records that a client of a thread has gone.
    pub(super) fn remove_client(&self, number: usize) {
        self.members[number].clients.fetch_sub(1, Relaxed);
    }
}

/// The threads of a running listener, whatever their connections are.
pub(super) trait Threads {
    /// Wakes every thread because the listener is to stop.
    fn stop(&self);

    /// Asks every thread to [answer](ThreadGroup::answer_check).
    fn check(&self);

    /// Returns true if all threads have answered the last check, or there was none.
    fn is_checked(&self) -> bool;
}

impl<S> Threads for ThreadGroup<S> {
    fn stop(&self) {
        self.stopping.store(true, Release);
        self.members.iter().for_each(|member| member.stop.wake_by_ref());
    }

    fn check(&self) {
        for member in &self.members {
            member.checked.store(false, Relaxed);
            member.check.wake_by_ref();
        }
    }

    fn is_checked(&self) -> bool {
        self.members.iter().all(|member| member.checked.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Wake;

    #[test]
    fn new_client_goes_to_the_thread_with_fewest_clients_or_stays_on_a_tie() {
        let signals = (0..3).map(|_| Wake::new().unwrap() as Arc<dyn Signal>);
        let group: ThreadGroup<()> =
            ThreadGroup::new(signals, WakeTokens { new_connections: 7, stop: 8, check: 9 });
        let chosen: Vec<usize> = (0..6).map(|_| group.choose_thread(1)).collect();
        assert_eq!(chosen, [1, 0, 2, 1, 0, 2]);
        group.remove_client(2);
        assert_eq!((group.choose_thread(0), group.choose_thread(0)), (2, 0));
    }
}
