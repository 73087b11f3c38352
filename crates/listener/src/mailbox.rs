//! Wake-ups of a listener's thread by other threads.
//!
//! A thread of a listener waits for sockets and has no async runtime. It polls futures itself, such
//! as the answer of a backend; their wakers put a token into the mailbox and interrupt the wait.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Release};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Wake, Waker};

use super::sockets::Signal;

/// Wake-ups of one thread by others: each is a token, of a client or for the whole thread.
pub(super) struct Mailbox {
    /// Interrupts the thread's wait for events; raised while the mailbox is not empty.
    signal: Arc<dyn Signal>,
    /// The wakers that were used since the mailbox was last emptied, each at most once.
    woken: Mutex<Vec<Arc<MailboxWaker>>>,
}

/// A waker that puts its token into a mailbox.
struct MailboxWaker {
    mailbox: Weak<Mailbox>,
    token: u64,
    /// True while the waker is in the mailbox.
    waiting: AtomicBool,
}

impl Mailbox {
    /// Creates an empty mailbox that raises `signal` when it gets its first wake-up.
    pub(super) fn new(signal: Arc<dyn Signal>) -> Arc<Self> {
        Arc::new(Self { signal, woken: Mutex::default() })
    }

    /// Creates a waker that puts `token` into the mailbox.
    pub(super) fn waker(self: &Arc<Self>, token: u64) -> Waker {
        let mailbox = Arc::downgrade(self);
        Waker::from(Arc::new(MailboxWaker { mailbox, token, waiting: AtomicBool::new(false) }))
    }

    /// Takes the tokens of all wakers used since the last call, and passes them to `wake`.
    pub(super) fn empty(&self, mut wake: impl FnMut(u64)) {
        // Lowered before the wakers are taken: a token that arrives in between raises it again.
        self.signal.lower();
        let woken = std::mem::take(&mut *self.woken.lock().unwrap_or_else(PoisonError::into_inner));
        for waker in woken {
            waker.waiting.store(false, Release);
            wake(waker.token);
        }
    }
}

impl Wake for MailboxWaker {
    fn wake(self: Arc<Self>) {
        // The thread has ended.
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
    fn mailbox_holds_each_used_waker_once() {
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
