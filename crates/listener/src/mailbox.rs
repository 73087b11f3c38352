//! How other threads wake a listener's thread.
//!
//! A thread of a listener waits for sockets and has no runtime. What it waits for besides, a
//! backend's answer or the end of the node, are futures that it polls itself; their wakers leave a
//! token here and make the event queue return.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Release};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Wake, Waker};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};

/// Wake-ups of one thread.
#[derive(Debug)]
pub(super) struct Mailbox {
    /// Readable while somebody is to be woken.
    signal: OwnedFd,
    /// Who is. Each waker is in it once at most.
    woken: Mutex<Vec<Arc<Sleeper>>>,
}

/// Who is woken by one waker.
#[derive(Debug)]
struct Sleeper {
    mailbox: Weak<Mailbox>,
    token: u64,
    /// Whether it is in the mailbox.
    waiting: AtomicBool,
}

impl Mailbox {
    /// An empty mailbox.
    ///
    /// # Errors
    /// When the system has no file descriptor for us.
    pub(super) fn new() -> std::io::Result<Arc<Self>> {
        let signal = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Arc::new(Self { signal, woken: Mutex::default() }))
    }

    /// What to watch for readability.
    pub(super) fn signal(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
    }

    /// A waker that leaves `token` here.
    pub(super) fn waker(self: &Arc<Self>, token: u64) -> Waker {
        let mailbox = Arc::downgrade(self);
        Waker::from(Arc::new(Sleeper { mailbox, token, waiting: AtomicBool::new(false) }))
    }

    /// Takes the tokens of all who were woken since the last time, and hands them to `wake`.
    pub(super) fn empty(&self, mut wake: impl FnMut(u64)) {
        // Read before looking: a token that comes in between makes it readable again.
        let _ = read(&self.signal, &mut [0; 8]);
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
        // It can only fail because it is as full as can be, and then it is readable.
        let _ = write(&mailbox.signal, &1_u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn woken(mailbox: &Mailbox) -> Vec<u64> {
        let mut woken = Vec::new();
        mailbox.empty(|token| woken.push(token));
        woken
    }

    #[test]
    fn everybody_who_was_woken_is_in_it_once() {
        let mailbox = Mailbox::new().unwrap();
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
