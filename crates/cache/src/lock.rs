//! A lock in stripes: who reads writes no line that another reader writes.
//!
//! A cache is read far more often than it is changed, and most of what is read is read by every
//! thread. Under a plain mutex, or a lock that counts its readers, each read writes the one word
//! that all threads write, and the line it lies on goes from core to core. Here each of a few
//! stripes has a small lock on a line of its own. A reader takes the stripe of its thread and no
//! other; a writer takes all, always in the same order, so that two writers never wait for each
//! other. Reading together with others then costs what reading alone does, and writing pays for it:
//! an atomic operation or two for each stripe.
//!
//! Two threads of the same stripe exclude each other, which is slower but as sound. Nothing
//! promises that a writer gets its turn, but what is held here is held for a microsecond.
//!
//! What a reader writes in any case, because it counts what it reads, lies on its stripe's line as
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

/// Most stripes of a lock.
pub(crate) const STRIPES_MAX: usize = 16;

/// How often a stripe that is held is looked at before its thread goes to sleep. Chosen: about as
/// long as one is held.
const LOOKS: usize = if cfg!(loom) { 1 } else { 100 };

/// A value that any number of threads read or one writes, and an `S` of each stripe.
pub(crate) struct Striped<T, S> {
    stripes: Stripes<S>,
    value: UnsafeCell<T>,
}

// SAFETY: `&T` is given out while a stripe is held, to several threads at a time, so `T` must be
// `Sync`; `&mut T` while all stripes are, to whichever thread, so it must be `Send`. Each reader
// holds a stripe, so nobody holds all beside it. `&S` is given out to everybody.
unsafe impl<T: Send + Sync, S: Sync> Sync for Striped<T, S> {}

impl<T, S> Striped<T, S> {
    /// `stripes` is 1 to [`STRIPES_MAX`], a power of two; `own` makes what each has.
    pub(crate) fn new(stripes: usize, value: T, own: impl Fn() -> S) -> Self {
        Self { stripes: Stripes::new(stripes, own), value: UnsafeCell::new(value) }
    }

    /// Waits until nobody writes. To be read only by one thread of each stripe at a time.
    #[inline]
    pub(crate) fn read(&self) -> Reading<'_, T, S> {
        let stripe = self.stripes.own();
        stripe.lock();
        Reading { value: &self.value, stripe }
    }

    /// As [`Self::read`] where nobody has to be waited for.
    #[inline]
    pub(crate) fn try_read(&self) -> Option<Reading<'_, T, S>> {
        let stripe = self.stripes.own();
        // Made only where the stripe was taken, since it gives the stripe back when it is dropped.
        stripe.try_lock().then(|| Reading { value: &self.value, stripe })
    }

    /// Waits until nobody else reads or writes.
    #[inline]
    pub(crate) fn write(&self) -> Writing<'_, T, S> {
        self.stripes.lock_all();
        Writing { of: self }
    }

    /// The value and what all stripes have, while nobody else can get at them.
    pub(crate) fn get_mut(&mut self) -> (&mut T, impl Iterator<Item = &mut S>) {
        (self.value.get_mut(), self.stripes.0.iter_mut().map(|stripe| &mut stripe.own))
    }

    /// Another with `value`, and what each stripe has of `own`, of which there is one for each
    /// stripe.
    pub(crate) fn with_own(value: T, own: impl Iterator<Item = S>) -> Self {
        Self { stripes: Stripes(own.map(Stripe::new).collect()), value: UnsafeCell::new(value) }
    }

    /// What all stripes have.
    pub(crate) fn of_stripes(&self) -> impl Iterator<Item = &S> {
        self.stripes.0.iter().map(|stripe| &stripe.own)
    }
}

impl<T, S> fmt::Debug for Striped<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Striped").field("stripes", &self.stripes.0.len()).finish_non_exhaustive()
    }
}

/// A value that nobody writes as long as this is there.
#[derive(Debug)]
pub(crate) struct Reading<'a, T, S> {
    value: &'a UnsafeCell<T>,
    stripe: &'a Stripe<S>,
}

impl<'a, T, S> Reading<'a, T, S> {
    /// What the stripe has that is held, so nobody else is reading by it.
    #[inline]
    pub(crate) fn own(&self) -> &'a S {
        &self.stripe.own
    }
}

impl<T, S> Deref for Reading<'_, T, S> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a stripe is held until this guard is dropped, which the returned borrow keeps
        // from happening, and `&mut T` is given out only to who holds them all.
        unsafe { &*self.value.get() }
    }
}

impl<T, S> Drop for Reading<'_, T, S> {
    #[inline]
    fn drop(&mut self) {
        self.stripe.unlock();
    }
}

/// A value that nobody else reads or writes as long as this is there.
#[derive(Debug)]
pub(crate) struct Writing<'a, T, S> {
    of: &'a Striped<T, S>,
}

impl<T, S> Writing<'_, T, S> {
    /// What one of the stripes has; all are held.
    #[inline]
    pub(crate) fn own(&self) -> &S {
        &self.of.stripes.0[0].own
    }
}

impl<T, S> Deref for Writing<'_, T, S> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: all stripes are held until this guard is dropped, so that the only `&mut T` there
        // can be is from this guard, which is borrowed.
        unsafe { &*self.of.value.get() }
    }
}

impl<T, S> DerefMut for Writing<'_, T, S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: all stripes are held until this guard is dropped, so there is no other guard to
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

/// The locks without what they protect.
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

/// One small lock, on a pair of lines of its own: processors fetch a line's neighbour with it, and
/// would take it from who holds the next stripe. A mutex of the standard library would do, were it
/// not that its guards would have to be kept, all of a writer's. What waits sleeps in that one's
/// place.
#[derive(Debug)]
#[repr(C, align(128))]
struct Stripe<S> {
    state: AtomicU32,
    /// Held from the decision to sleep until asleep, and to wake.
    bed: Mutex<()>,
    free: Condvar,
    own: S,
}

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody may be asleep.
const WAITED_FOR: u32 = 2;

impl<S> Stripe<S> {
    fn new(own: S) -> Self {
        Self { state: AtomicU32::new(FREE), bed: Mutex::new(()), free: Condvar::new(), own }
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
        let mut bed = self.bed();
        // Taken as waited for, since others may be asleep still.
        while self.state.swap(WAITED_FOR, Acquire) != FREE {
            bed = self.free.wait(bed).unwrap_or_else(PoisonError::into_inner);
        }
    }

    #[inline]
    fn unlock(&self) {
        if self.state.swap(FREE, Release) == WAITED_FOR {
            self.wake();
        }
    }

    /// Whoever has found the lock held, and said so, is asleep when the bed is free.
    #[cold]
    fn wake(&self) {
        let _bed = self.bed();
        self.free.notify_one();
    }

    fn bed(&self) -> MutexGuard<'_, ()> {
        self.bed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A number for this thread, dealt in turn, so that neighbours differ in their last bits. It
/// decides who waits for whom and no result.
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
