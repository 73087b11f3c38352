//! Rounds on the system's sockets: an io_uring instance for each thread.
//!
//! Sockets never block, so each operation of a round ends within the system call that begins it:
//! successfully, or with the error that the plain call would return. Nothing is under way
//! afterwards, and memory that an operation uses is borrowed until then. Should the system ever put
//! an operation off, it is waited for, then cancelled, and left to the plain call.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, opcode, squeue};

use super::sockets::{Outgoing, Receiving, Sending};

/// Operations that are begun at once; a longer round is cut into several.
const ENTRIES: u32 = 64;
/// Time for which operations that did not end at once are waited for, and again after they were
/// cancelled.
const PATIENCE: Duration = Duration::from_millis(100);
/// Most system calls that one part of a round makes.
const CALLS_MAX: usize = 100;
/// Flags of a call that waits for operations that were begun, for a time.
const WAIT: EnterFlags = EnterFlags::GETEVENTS.union(EnterFlags::EXT_ARG);
/// Flags of sends.
const SEND_FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// Checks that this process can serve several connections in one system call.
///
/// # Errors
/// The system's reason: it is older than Linux 6.1, or io_uring is forbidden, as by a seccomp
/// filter or by `kernel.io_uring_disabled`.
pub fn rounds_available() -> io::Result<()> {
    // The system may interrupt calls of a thread whose ring is closed, so this has one of its own.
    let tried = std::thread::Builder::new().name("io-uring".to_owned()).spawn(|| Ring::new().map(drop))?;
    tried.join().unwrap_or_else(|_| Err(io::Error::other("the attempt to use it panicked")))
}

/// The io_uring instance of a thread.
pub(super) struct Ring {
    ring: IoUring,
    entries: usize,
}

impl Ring {
    /// Creates a ring for this thread, which alone may use it.
    ///
    /// # Errors
    /// If the system has no io_uring (before Linux 6.1) or refuses it.
    pub(super) fn new() -> io::Result<Self> {
        Self::with_entries(ENTRIES)
    }

    fn with_entries(entries: u32) -> io::Result<Self> {
        let mut ring = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(entries)?;
        let entries = ring.submission().capacity();
        Ok(Self { ring, entries })
    }

    /// Carries out a round of receives. Those without a result afterwards were not carried out.
    ///
    /// # Errors
    /// If the ring can no longer be used.
    pub(super) fn receive(&mut self, round: &mut [Receiving<'_, OwnedFd>]) -> io::Result<()> {
        for part in round.chunks_mut(self.entries) {
            let entry = |one: &mut Receiving<'_, OwnedFd>| {
                let bytes = u32::try_from(one.room.len()).unwrap_or(u32::MAX);
                let room = one.room.as_mut_ptr();
                opcode::Recv::new(Fd(one.socket.as_raw_fd()), room, bytes).flags(libc::MSG_DONTWAIT).build()
            };
            let entries: Vec<_> = part.iter_mut().map(entry).collect();
            // SAFETY: the rooms are borrowed by `round`.
            unsafe { self.run(&entries, |at, result| part[at].result = result) }?;
        }
        Ok(())
    }

    /// Carries out a round of sends, like [`receive`](Self::receive).
    ///
    /// # Errors
    /// If the ring can no longer be used.
    pub(super) fn send(&mut self, round: &mut [Sending<'_, OwnedFd>]) -> io::Result<()> {
        for part in round.chunks_mut(self.entries) {
            let messages: Vec<_> = part.iter().map(|one| message(&one.bytes)).collect();
            let entry = |(one, message): (&Sending<'_, OwnedFd>, &libc::msghdr)| {
                let socket = Fd(one.socket.as_raw_fd());
                match &one.bytes {
                    Outgoing::One(bytes) => {
                        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                        opcode::Send::new(socket, bytes.as_ptr(), length).flags(SEND_FLAGS).build()
                    }
                    Outgoing::Parts(_) => {
                        opcode::SendMsg::new(socket, message).flags(SEND_FLAGS as u32).build()
                    }
                }
            };
            let entries: Vec<_> = part.iter().zip(&messages).map(entry).collect();
            // SAFETY: the bytes are borrowed by `round`, and `messages` lives longer than the call.
            unsafe { self.run(&entries, |at, result| part[at].result = result) }?;
        }
        Ok(())
    }

    /// Carries out operations, at most as many as the ring has entries, and reports their results,
    /// in any order; none for one that was cancelled.
    ///
    /// # Errors
    /// If the ring can no longer be used. Operations without a result were not carried out.
    ///
    /// # Safety
    /// The memory that the entries refer to has to be valid until this returns.
    unsafe fn run(
        &mut self,
        entries: &[squeue::Entry],
        mut done: impl FnMut(usize, Option<io::Result<usize>>),
    ) -> io::Result<()> {
        {
            let mut queue = self.ring.submission();
            for (at, entry) in entries.iter().enumerate() {
                let entry = entry.clone().user_data(at as u64);
                // SAFETY: the caller keeps the memory valid until this function returns, and it
                // does not return while an operation is under way.
                unsafe { queue.push(&entry) }.map_err(io::Error::other)?;
            }
        }
        let mut under_way = UnderWay { begun: 0, ended: 0 };
        let begun = self.begin(entries.len(), &mut under_way, &mut done);
        if under_way.is_over() {
            return begun;
        }
        self.await_all(&mut under_way, &mut done);
        if !under_way.is_over() {
            let _ = self.ring.submitter().register_sync_cancel(Some(PATIENCE.into()), CancelBuilder::any());
            self.await_all(&mut under_way, &mut done);
        }
        if !under_way.is_over() {
            // The kernel may still use the memory, so neither can it be freed nor can this return.
            tracing::error!(
                "the system holds on to memory of an operation that was cancelled; the process ends"
            );
            std::process::abort();
        }
        begun
    }

    /// Begins the queued operations and reports those that end at once.
    fn begin(
        &mut self,
        queued: usize,
        under_way: &mut UnderWay,
        done: &mut impl FnMut(usize, Option<io::Result<usize>>),
    ) -> io::Result<()> {
        for _ in 0..CALLS_MAX {
            match self.ring.submit() {
                Ok(begun) => under_way.begun += begun,
                // Interrupted, or the system is out of memory for now.
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
                Err(error) => return Err(error),
            }
            self.take_ended(under_way, done);
            if under_way.begun == queued {
                return Ok(());
            }
        }
        Err(io::Error::other("the system begins no operations"))
    }

    /// Waits until all operations have ended, for a time at most.
    fn await_all(
        &mut self,
        under_way: &mut UnderWay,
        done: &mut impl FnMut(usize, Option<io::Result<usize>>),
    ) {
        for _ in 0..CALLS_MAX {
            if under_way.is_over() {
                return;
            }
            let patience = Timespec::from(PATIENCE);
            let timeout = SubmitArgs::new().timespec(&patience);
            let ends = (under_way.begun - under_way.ended) as u32;
            // SAFETY: nothing is begun; `timeout` and what it refers to live longer than the call.
            let waited = unsafe { self.ring.submitter().enter(0, ends, WAIT.bits(), Some(&timeout)) };
            self.take_ended(under_way, done);
            if waited.is_err_and(|error| error.raw_os_error() != Some(libc::EINTR)) {
                return;
            }
        }
    }

    fn take_ended(
        &mut self,
        under_way: &mut UnderWay,
        done: &mut impl FnMut(usize, Option<io::Result<usize>>),
    ) {
        for ended in self.ring.completion() {
            under_way.ended += 1;
            done(ended.user_data() as usize, result(ended.result()));
        }
    }
}

/// Numbers of operations of a part of a round.
struct UnderWay {
    begun: usize,
    ended: usize,
}

impl UnderWay {
    fn is_over(&self) -> bool {
        self.begun == self.ended
    }
}

/// Returns the header of a message of several parts, at most 1,024; an empty one for a single part.
fn message(bytes: &Outgoing<'_>) -> libc::msghdr {
    // SAFETY: a header of zeros is valid: nothing is to be sent, and nothing comes with it.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    if let Outgoing::Parts(parts) = bytes {
        // `IoSlice` has the layout of `iovec`, and sending does not change it.
        message.msg_iov = parts.as_ptr().cast_mut().cast();
        message.msg_iovlen = parts.len() as _;
    }
    message
}

/// Returns the result of an operation as the plain call would; none if it was cancelled.
fn result(code: i32) -> Option<io::Result<usize>> {
    match code {
        bytes @ 0.. => Some(Ok(bytes as usize)),
        code if code == -libc::ECANCELED => None,
        code => Some(Err(io::Error::from_raw_os_error(-code))),
    }
}

#[cfg(test)]
mod tests;
