//! How other threads wake a listener's thread.
//!
//! A thread of a listener waits for sockets and has no runtime. What it waits for besides, a
//! backend's answer or the end of the node, are futures that it polls itself; their wakers leave a
//! token here and make the event queue return.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Release};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Wake, Waker};

use super::sockets::Signal;

/// Wake-ups of one thread.
pub(super) struct Mailbox {
    /// Raised while there are wake-ups.
    signal: Arc<dyn Signal>,
    /// Who is. Each waker is in it once at most.
    woken: Mutex<Vec<Arc<Sleeper>>>,
}

/// Who is woken by one waker.
struct Sleeper {
    mailbox: Weak<Mailbox>,
    token: u64,
    /// Whether it is in the mailbox.
    waiting: AtomicBool,
}

impl Mailbox {
    /// An empty mailbox that raises `signal` when something is in it.
    pub(super) fn new(signal: Arc<dyn Signal>) -> Arc<Self> {
        Arc::new(Self { signal, woken: Mutex::default() })
    }

    /// A waker that leaves `token` here.
    pub(super) fn waker(self: &Arc<Self>, token: u64) -> Waker {
        let mailbox = Arc::downgrade(self);
        Waker::from(Arc::new(Sleeper { mailbox, token, waiting: AtomicBool::new(false) }))
    }

    /// Takes the tokens of all who were woken since the last time, and hands them to `wake`.
    pub(super) fn empty(&self, mut wake: impl FnMut(u64)) {
        // Lowered before looking: a token that comes in between raises it again.
        self.signal.lower();
        let woken = std::mem::take(&mut *self.woken.lock().unwrap_or_else(PoisonError::into_inner));
        for sleeper in woken {
            sleeper.waiting.store(false, Release);
            wake(sleeper.token);
        }
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        // A mailbox that is gone has nobody to wake.
        let Some(mailbox) = self.mailbox.upgrade() else { return };
        if self.waiting.swap(true, AcqRel) {
            return;
        }
        mailbox.woken.lock().unwrap_or_else(PoisonError::into_inner).push(self);
        mailbox.signal.raise();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Wake;

    fn woken(mailbox: &Mailbox) -> Vec<u64> {
        let mut woken = Vec::new();
        mailbox.empty(|token| woken.push(token));
        woken
    }

    #[test]
    fn everybody_who_was_woken_is_in_it_once() {
        let mailbox = Mailbox::new(Wake::new().unwrap());
        let (one, two) = (mailbox.waker(1), mailbox.waker(2));
        assert!(woken(&mailbox).is_empty());
        two.wake_by_ref();
        one.wake_by_ref();
        two.wake_by_ref();
        assert_eq!(woken(&mailbox), [2, 1]);
        assert!(woken(&mailbox).is_empty());
        two.wake();
        assert_eq!(woken(&mailbox), [2]);
    }
}
