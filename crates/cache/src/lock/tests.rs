//! One thing at a time, whoever comes; schedules of three threads under loom, real threads otherwise.

#[cfg(loom)]
mod schedules {
    use super::super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    /// What the stripes protect, with a cell that reports every access that is not ordered by them.
    struct Pair {
        stripes: Stripes<()>,
        value: UnsafeCell<u32>,
    }

    // SAFETY: that the accesses exclude each other is what is explored.
    unsafe impl Sync for Pair {}
    // SAFETY: as above.
    unsafe impl Send for Pair {}

    fn read(pair: &Pair, stripe: usize) -> u32 {
        pair.stripes.0[stripe].lock();
        let seen = pair.value.with(|value| {
            // SAFETY: a stripe is held; loom checks that nobody writes.
            unsafe { *value }
        });
        pair.stripes.0[stripe].unlock();
        seen
    }

    fn write(pair: &Pair) {
        pair.stripes.lock_all();
        pair.value.with_mut(|value| {
            // SAFETY: all stripes are held; loom checks that nobody reads or writes.
            unsafe { *value += 1 }
        });
        pair.stripes.unlock_all();
    }

    fn explore(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.check(check);
    }

    fn pair() -> Arc<Pair> {
        Arc::new(Pair { stripes: Stripes::new(2, || ()), value: UnsafeCell::new(0) })
    }

    #[test]
    fn two_writers_and_a_reader() {
        explore(3, || {
            let pair = pair();
            let other = Arc::clone(&pair);
            let writer = thread::spawn(move || write(&other));
            let other = Arc::clone(&pair);
            let reader = thread::spawn(move || read(&other, 1));
            write(&pair);
            writer.join().unwrap();
            assert!(reader.join().unwrap() <= 2);
            assert_eq!(read(&pair, 0), 2);
        });
    }

    #[test]
    fn readers_of_one_stripe_and_of_another_and_a_writer() {
        explore(3, || {
            let pair = pair();
            let other = Arc::clone(&pair);
            let reader = thread::spawn(move || (read(&other, 0), read(&other, 0)));
            let other = Arc::clone(&pair);
            let another = thread::spawn(move || read(&other, 1));
            write(&pair);
            let (first, second) = reader.join().unwrap();
            assert!(first <= second);
            assert!(another.join().unwrap() <= 1);
        });
    }
}

#[cfg(not(loom))]
mod threads {
    use std::sync::atomic::AtomicU64;

    use super::super::*;

    const ROUNDS: u64 = if cfg!(miri) { 100 } else { 20_000 };

    #[test]
    fn who_is_refused_gives_nothing_back() {
        let lock = Striped::new(1, 0_u64, || ());
        let held = lock.write();
        for _ in 0..3 {
            assert!(lock.try_read().is_none());
        }
        drop(held);
        assert!(lock.try_read().is_some());
    }

    #[test]
    fn readers_see_whole_writes() {
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
    fn a_panic_leaves_the_lock_free() {
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
    fn a_reader_keeps_out_writers_and_no_reader_of_another_stripe() {
        let stripes = Stripes::new(2, || ());
        stripes.0[0].lock();
        assert_eq!(stripes.0[0].state.load(Relaxed), HELD);
        // Were the two in each other's way, this would never return.
        stripes.0[1].lock();
        stripes.0[1].unlock();
        stripes.0[0].unlock();
        stripes.lock_all();
        assert!(stripes.0.iter().all(|stripe| stripe.state.load(Relaxed) == HELD));
        stripes.unlock_all();
        assert!(stripes.0.iter().all(|stripe| stripe.state.load(Relaxed) == FREE));
    }
}
