//! Mutual exclusion of the striped lock: all schedules of three threads under loom, real threads
//! otherwise.

#[cfg(loom)]
mod schedules {
    use super::super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    /// The protected value: a cell that reports every access that the lock does not order.
    struct Watched(UnsafeCell<u32>);

    // SAFETY: loom explores whether the accesses exclude each other.
    unsafe impl Sync for Watched {}
    // SAFETY: as above.
    unsafe impl Send for Watched {}

    type Lock = Striped<Watched, ()>;

    fn see(reading: &Reading<'_, Watched, ()>) -> u32 {
        reading.0.with(|value| {
            // SAFETY: a stripe is held; loom checks that no thread writes.
            unsafe { *value }
        })
    }

    /// Reads by a given stripe: loom runs all of its threads on one system thread.
    fn read(lock: &Lock, stripe: usize) -> u32 {
        let stripe = &lock.stripes.0[stripe];
        stripe.lock();
        see(&Reading { value: &lock.value, stripe })
    }

    fn write(lock: &Lock) {
        lock.write().0.with_mut(|value| {
            // SAFETY: all stripes are held; loom checks that no other thread reads or writes.
            unsafe { *value += 1 }
        });
    }

    fn explore(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.check(check);
    }

    fn lock(stripes: usize) -> Arc<Lock> {
        Arc::new(Striped::new(stripes, Watched(UnsafeCell::new(0)), || ()))
    }

    #[test]
    fn two_writers_and_a_reader_exclude_each_other() {
        explore(3, || {
            let lock = lock(2);
            let other = Arc::clone(&lock);
            let writer = thread::spawn(move || write(&other));
            let other = Arc::clone(&lock);
            let reader = thread::spawn(move || read(&other, 1));
            write(&lock);
            writer.join().unwrap();
            assert!(reader.join().unwrap() <= 2);
            assert_eq!(read(&lock, 0), 2);
        });
    }

    #[test]
    fn readers_of_two_stripes_and_a_writer_exclude_each_other() {
        explore(3, || {
            let lock = lock(2);
            let other = Arc::clone(&lock);
            let reader = thread::spawn(move || (read(&other, 0), read(&other, 0)));
            let other = Arc::clone(&lock);
            let another = thread::spawn(move || read(&other, 1));
            write(&lock);
            let (first, second) = reader.join().unwrap();
            assert!(first <= second);
            assert!(another.join().unwrap() <= 1);
        });
    }

    /// The block of a large item: its release is an access that has to be ordered after all reads.
    struct Block(UnsafeCell<u32>);

    impl Drop for Block {
        fn drop(&mut self) {
            self.0.with_mut(|value| {
                // SAFETY: the last owner releases it; loom checks that no other thread reads.
                unsafe { *value = 0 }
            });
        }
    }

    // SAFETY: loom explores whether the accesses exclude each other.
    unsafe impl Sync for Block {}
    // SAFETY: as above.
    unsafe impl Send for Block {}

    #[test]
    fn pinned_block_is_released_after_its_last_reader_although_its_item_is_replaced() {
        explore(3, || {
            let block = |value| Arc::new(Block(UnsafeCell::new(value)));
            let lock = Arc::new(Striped::new(2, block(1), || ()));
            let other = Arc::clone(&lock);
            let reader = thread::spawn(move || {
                let stripe = &other.stripes.0[1];
                stripe.lock();
                let pinned = Arc::clone(&*Reading { value: &other.value, stripe });
                pinned.0.with(|value| {
                    // SAFETY: a pinned block is not written; loom checks that it is not released.
                    unsafe { *value }
                })
            });
            let replaced = std::mem::replace(&mut *lock.write(), block(2));
            drop(replaced);
            assert!((1..=2).contains(&reader.join().unwrap()));
        });
    }

    #[test]
    fn failed_try_read_does_not_unlock_the_stripe() {
        explore(3, || {
            let lock = lock(1);
            let other = Arc::clone(&lock);
            let writer = thread::spawn(move || write(&other));
            let other = Arc::clone(&lock);
            let reader = thread::spawn(move || other.try_read().map(|reading| see(&reading)));
            write(&lock);
            writer.join().unwrap();
            assert!(reader.join().unwrap().is_none_or(|seen| seen <= 2));
            assert_eq!(read(&lock, 0), 2);
        });
    }
}

#[cfg(not(loom))]
mod threads {
    use std::sync::atomic::AtomicU64;

    use super::super::*;

    const ROUNDS: u64 = if cfg!(miri) { 100 } else { 20_000 };

    #[test]
    fn failed_try_read_leaves_the_lock_held() {
        let lock = Striped::new(1, 0_u64, || ());
        let held = lock.write();
        for _ in 0..3 {
            assert!(lock.try_read().is_none());
        }
        drop(held);
        assert!(lock.try_read().is_some());
    }

    #[test]
    fn readers_see_complete_writes() {
        for stripes in [1, 2, 16] {
            let lock = Striped::new(stripes, (0_u64, 0_u64), || ());
            let reads = AtomicU64::new(0);
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let (lock, reads) = (&lock, &reads);
                    scope.spawn(move || {
                        for round in 0..ROUNDS {
                            if (round + thread) % 4 == 0 {
                                let mut pair = lock.write();
                                pair.0 += 1;
                                pair.1 += 1;
                            } else {
                                let pair = lock.read();
                                assert_eq!(pair.0, pair.1);
                                reads.fetch_add(1, Relaxed);
                            }
                        }
                    });
                }
            });
            assert_eq!(*lock.read(), (ROUNDS, ROUNDS));
            assert_eq!(reads.into_inner(), 3 * ROUNDS);
        }
    }

    #[test]
    fn panic_of_a_reader_unlocks() {
        let lock = Striped::new(2, 1, || ());
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _reading = lock.read();
            panic!("a reader");
        }));
        assert!(outcome.is_err());
        *lock.write() += 1;
        assert_eq!(*lock.read(), 2);
    }

    #[test]
    fn reader_locks_only_its_own_stripe() {
        let stripes = Stripes::new(2, || ());
        stripes.0[0].lock();
        assert_eq!(stripes.0[0].state.load(Relaxed), HELD);
        // If the stripes excluded each other, this would never return.
        stripes.0[1].lock();
        stripes.0[1].unlock();
        stripes.0[0].unlock();
        stripes.lock_all();
        assert!(stripes.0.iter().all(|stripe| stripe.state.load(Relaxed) == HELD));
        stripes.unlock_all();
        assert!(stripes.0.iter().all(|stripe| stripe.state.load(Relaxed) == FREE));
    }
}
