//! A striped readers-writer lock: concurrent readers write different cache lines.
//!
//! A cache is read far more often than it is changed, and its hottest data is read by every thread.
//! Under a mutex, or a lock that counts its readers, each read writes one word shared by all
//! threads, whose cache line moves from core to core. Here each of a few stripes has a small lock
//! on its own cache line. A reader locks the stripe of its thread; a writer locks all stripes in a
//! fixed order, so that writers do not deadlock. A concurrent read then costs as much as an
//! uncontended one, and a write costs one or two atomic operations per stripe.
//!
//! Threads of the same stripe exclude each other, which is slower but equally correct. Writers may
//! in theory be delayed indefinitely, but the lock is held for about a microsecond only.
//!
//! Data that readers write, such as counters of reads, is stored on the stripe's cache line as
//! well.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};

#[cfg(all(loom, test))]
use loom::sync::{Condvar, Mutex, MutexGuard, atomic::AtomicU32};
#[cfg(not(all(loom, test)))]
use std::sync::{Condvar, Mutex, MutexGuard, atomic::AtomicU32};

use std::cell::Cell;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Largest number of stripes of a lock.
pub(crate) const STRIPES_MAX: usize = 16;

/// Number of times a held stripe is checked before the thread sleeps. Chosen: about the time for
/// which a stripe is held.
const LOOKS: usize = if cfg!(loom) { 1 } else { 100 };

/// A value locked for any number of readers or one writer; each stripe (part of the lock) has an
/// `S`.
pub(crate) struct Striped<T, S> {
    stripes: Stripes<S>,
    value: UnsafeCell<T>,
}

// SAFETY: `&T` is handed out while a stripe is held, to several threads at a time, so `T` must be
// `Sync`; `&mut T` while all stripes are held, to any thread, so `T` must be `Send`. Each reader
// holds a stripe, so no other thread holds all of them. `&S` is handed out to all threads.
unsafe impl<T: Send + Sync, S: Sync> Sync for Striped<T, S> {}

impl<T, S> Striped<T, S> {
    /// Returns a lock of `stripes` stripes, 1 to [`STRIPES_MAX`] and a power of two; `own`
    /// constructs each stripe's data.
    pub(crate) fn new(stripes: usize, value: T, own: impl Fn() -> S) -> Self {
        Self { stripes: Stripes::new(stripes, own), value: UnsafeCell::new(value) }
    }

    /// Locks for reading: waits until there is no writer. Threads of one stripe read one at a time.
    #[inline]
    pub(crate) fn read(&self) -> Reading<'_, T, S> {
        let stripe = self.stripes.own();
        stripe.lock();
        Reading { value: &self.value, stripe }
    }

    /// Like [`Self::read`], but returns none instead of waiting.
    #[inline]
    pub(crate) fn try_read(&self) -> Option<Reading<'_, T, S>> {
        let stripe = self.stripes.own();
        // Constructed only if the stripe was locked, since dropping it unlocks the stripe.
        stripe.try_lock().then(|| Reading { value: &self.value, stripe })
    }

    /// Locks for writing: waits until there is neither reader nor writer.
    #[inline]
    pub(crate) fn write(&self) -> Writing<'_, T, S> {
        self.stripes.lock_all();
        Writing { of: self }
    }

    /// The value and the data of all stripes, exclusively.
    pub(crate) fn get_mut(&mut self) -> (&mut T, impl Iterator<Item = &mut S>) {
        (self.value.get_mut(), self.stripes.0.iter_mut().map(|stripe| &mut stripe.own))
    }

    /// Returns a lock of `value` with one stripe for each element of `own`.
    pub(crate) fn with_own(value: T, own: impl Iterator<Item = S>) -> Self {
        Self { stripes: Stripes(own.map(Stripe::new).collect()), value: UnsafeCell::new(value) }
    }

    /// The data of all stripes.
    pub(crate) fn of_stripes(&self) -> impl Iterator<Item = &S> {
        self.stripes.0.iter().map(|stripe| &stripe.own)
    }
}

impl<T, S> fmt::Debug for Striped<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Striped").field("stripes", &self.stripes.0.len()).finish_non_exhaustive()
    }
}

/// Guard of a reader of a [`Striped`] value, which is not written while the guard exists.
#[derive(Debug)]
pub(crate) struct Reading<'a, T, S> {
    value: &'a UnsafeCell<T>,
    stripe: &'a Stripe<S>,
}

impl<'a, T, S> Reading<'a, T, S> {
    /// Returns the data of the stripe that the reader holds, which no other reader uses.
    #[inline]
    pub(crate) fn own(&self) -> &'a S {
        &self.stripe.own
    }
}

impl<T, S> Deref for Reading<'_, T, S> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a stripe is held until this guard is dropped, which the returned borrow prevents,
        // and `&mut T` is handed out only while all stripes are held.
        unsafe { &*self.value.get() }
    }
}

impl<T, S> Drop for Reading<'_, T, S> {
    #[inline]
    fn drop(&mut self) {
        self.stripe.unlock();
    }
}

/// Guard of the writer: no other thread accesses the value while it exists.
#[derive(Debug)]
pub(crate) struct Writing<'a, T, S> {
    of: &'a Striped<T, S>,
}

impl<T, S> Writing<'_, T, S> {
    /// Returns the data of one of the stripes, all of which the writer holds.
    #[inline]
    pub(crate) fn own(&self) -> &S {
        &self.of.stripes.0[0].own
    }
}

impl<T, S> Deref for Writing<'_, T, S> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: all stripes are held until this guard is dropped, so the only possible `&mut T`
        // is from this guard, which is borrowed.
        unsafe { &*self.of.value.get() }
    }
}

impl<T, S> DerefMut for Writing<'_, T, S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: all stripes are held until this guard is dropped, so no other guard exists to
        // borrow the value from, and this one is borrowed mutably.
        unsafe { &mut *self.of.value.get() }
    }
}

impl<T, S> Drop for Writing<'_, T, S> {
    #[inline]
    fn drop(&mut self) {
        self.of.stripes.unlock_all();
    }
}

/// The locks of the stripes, without the value that they protect.
#[derive(Debug)]
struct Stripes<S>(Box<[Stripe<S>]>);

impl<S> Stripes<S> {
    fn new(stripes: usize, own: impl Fn() -> S) -> Self {
        debug_assert!(stripes.is_power_of_two() && stripes <= STRIPES_MAX);
        Self((0..stripes).map(|_| Stripe::new(own())).collect())
    }

    /// The stripe of this thread.
    #[inline]
    fn own(&self) -> &Stripe<S> {
        match &*self.0 {
            [stripe] => stripe,
            stripes => &stripes[thread_number() & (stripes.len() - 1)],
        }
    }

    #[inline]
    fn lock_all(&self) {
        self.0.iter().for_each(Stripe::lock);
    }

    #[inline]
    fn unlock_all(&self) {
        self.0.iter().for_each(Stripe::unlock);
    }
}

/// A small lock on its own pair of cache lines: processors fetch lines in pairs, and would
/// otherwise invalidate the neighbouring stripe. A standard mutex cannot be used, because a writer
/// would have to store the guards of all stripes. Waiting threads sleep on the standard condition
/// variable.
#[derive(Debug)]
#[repr(C, align(128))]
struct Stripe<S> {
    state: AtomicU32,
    /// Held by a thread from its decision to sleep until it is asleep, and by the thread that wakes
    /// it.
    wait_lock: Mutex<()>,
    free: Condvar,
    own: S,
}

const FREE: u32 = 0;
const HELD: u32 = 1;
/// State of a stripe that is held while another thread may be asleep, waiting for it.
const WAITED_FOR: u32 = 2;

impl<S> Stripe<S> {
    fn new(own: S) -> Self {
        Self { state: AtomicU32::new(FREE), wait_lock: Mutex::new(()), free: Condvar::new(), own }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.state.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
    }

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.wait();
        }
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..LOOKS {
            std::hint::spin_loop();
            if self.state.load(Relaxed) == FREE && self.try_lock() {
                return;
            }
        }
        let mut wait_lock = self.wait_lock();
        // Locked as `WAITED_FOR`, since other threads may still be asleep.
        while self.state.swap(WAITED_FOR, Acquire) != FREE {
            wait_lock = self.free.wait(wait_lock).unwrap_or_else(PoisonError::into_inner);
        }
    }

    #[inline]
    fn unlock(&self) {
        if self.state.swap(FREE, Release) == WAITED_FOR {
            self.wake();
        }
    }

    /// Wakes a thread. Taking the mutex ensures that a thread which has announced its wait is
    /// asleep.
    #[cold]
    fn wake(&self) {
        let _bed = self.wait_lock();
        self.free.notify_one();
    }

    fn wait_lock(&self) -> MutexGuard<'_, ()> {
        self.wait_lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Number of this thread, assigned in turn, so that consecutive threads use different stripes. It
/// affects waiting only, not results.
#[inline]
fn thread_number() -> usize {
    const NONE: usize = usize::MAX;
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(NONE) };
    }
    NUMBER.with(|number| {
        if number.get() == NONE {
            number.set(NEXT.fetch_add(1, Relaxed) & (usize::MAX >> 1));
        }
        number.get()
    })
}

#[cfg(test)]
mod tests;
