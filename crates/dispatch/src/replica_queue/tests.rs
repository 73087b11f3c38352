use proptest::prelude::*;
use sherwood_model::DeadlineClass;

use super::*;
use crate::rules::Rank;

fn add(queue: &mut ReplicaQueue<u32>, entry: u32) -> bool {
    queue.enqueue(Instant::ZERO, entry, &Demand::default(), QueuedCall::default())
}

fn fifo(workers: u32, queued_max: u32) -> ReplicaQueue<u32> {
    ReplicaQueue::new(QueueOptions::fifo(workers, queued_max))
}

/// Returns a queue in the order of the classes of its entries, with extra calls behind all others.
fn by_class(workers: u32, queued_max: u32) -> ReplicaQueue<u32> {
    let order = AnyOrder::Test(|demand| Rank { class: 0, at: Instant::from_millis(demand.class.0.into()) });
    let options = QueueOptions::fifo(workers, queued_max);
    ReplicaQueue::with_order(order, QueueOptions { extra_behind: true, ..options })
}

fn start(queue: &mut ReplicaQueue<u32>) -> Option<u32> {
    queue.start_next(Instant::ZERO)
}

#[test]
fn queued_entries_start_in_order_of_arrival_while_a_worker_is_idle() {
    let mut queue = fifo(2, 9);
    assert!((1..=4).all(|entry| add(&mut queue, entry)));
    assert_eq!([start(&mut queue), start(&mut queue), start(&mut queue)], [Some(1), Some(2), None]);
    assert_eq!((queue.in_flight(), queue.queued()), (2, 2));
    for expected in [Some(3), Some(4), None] {
        queue.complete(0, None);
        assert_eq!(start(&mut queue), expected);
    }
    assert_eq!(queue.in_flight(), 1);
}

#[test]
fn full_queue_refuses_entries_and_queue_of_size_0_accepts_those_that_start_at_once() {
    let mut queue = fifo(1, 1);
    assert!(add(&mut queue, 1));
    assert_eq!(start(&mut queue), Some(1));
    assert_eq!([add(&mut queue, 2), add(&mut queue, 3)], [true, false]);
    let mut queue = fifo(1, 0);
    assert_eq!([add(&mut queue, 1), add(&mut queue, 2)], [true, false]);
    assert_eq!(start(&mut queue), Some(1));
    assert!(!add(&mut queue, 3));
    queue.complete(0, None);
    assert!(add(&mut queue, 4));
}

#[test]
fn cancelled_entry_leaves_the_queue_and_a_started_one_keeps_its_worker() {
    let mut queue = fifo(1, 9);
    assert!((1..=3).all(|entry| add(&mut queue, entry)));
    assert_eq!(start(&mut queue), Some(1));
    assert_eq!([1, 2, 2].map(|entry| queue.cancel(entry)), [false, true, false]);
    assert_eq!(start(&mut queue), None);
    queue.complete(0, None);
    assert_eq!((start(&mut queue), queue.queued()), (Some(3), 0));
}

#[test]
fn ranked_queue_starts_the_least_rank_first_and_extra_calls_last() {
    let mut queue = by_class(1, 9);
    for (entry, class, is_extra) in
        [(1, 2, false), (2, 1, true), (3, 0, true), (4, 1, false), (5, 1, true), (6, 2, false)]
    {
        let demand = Demand { class: DeadlineClass(class), ..Demand::default() };
        assert!(queue.enqueue(Instant::ZERO, entry, &demand, QueuedCall { keys: 1, is_extra }));
    }
    assert_eq!(queue.entries().collect::<Vec<_>>(), [4, 1, 6, 3, 2, 5]);
    assert_eq!(queue.take_all(), [4, 1, 6, 3, 2, 5]);
    assert_eq!(queue.queued(), 0);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Enqueue { class: u8, is_extra: bool },
    Cancel(u32),
    StartNext,
    Complete,
    TakeAll,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..3_u8, any::<bool>()).prop_map(|(class, is_extra)| Step::Enqueue { class, is_extra }),
        2 => (0..60_u32).prop_map(Step::Cancel),
        6 => Just(Step::StartNext),
        4 => Just(Step::Complete),
        1 => Just(Step::TakeAll),
    ];
    proptest::collection::vec(step, 0..120)
}

/// A reference implementation of the queue, whose operations take time linear in the entries.
struct Model {
    room: usize,
    workers: usize,
    /// The rank and the number of each entry that waits. Numbers ascend with the arrival.
    waiting: Vec<((bool, u8), u32)>,
    in_flight: usize,
}

impl Model {
    fn enqueue(&mut self, rank: (bool, u8), entry: u32) -> bool {
        let has_room = self.in_flight + self.waiting.len() < self.room;
        self.waiting.extend(has_room.then_some((rank, entry)));
        has_room
    }

    fn cancel(&mut self, entry: u32) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|(_, waiting)| *waiting != entry);
        self.waiting.len() < before
    }

    fn start_next(&mut self) -> Option<u32> {
        let next = *self.waiting.iter().min().filter(|_| self.in_flight < self.workers)?;
        self.waiting.retain(|waiting| *waiting != next);
        self.in_flight += 1;
        Some(next.1)
    }

    fn in_order(&self) -> Vec<u32> {
        let mut waiting = self.waiting.clone();
        waiting.sort_unstable();
        waiting.into_iter().map(|(_, entry)| entry).collect()
    }
}

proptest! {
    /// Compares random operations with the reference. Entries are numbered in the order in
    /// which they are offered, and never reused.
    #[test]
    fn replica_queue_behaves_like_a_sorted_list(
        ranked: bool, workers in 0..4_u32, queued_max in 0..12_u32, steps in steps()
    ) {
        let mut queue = if ranked { by_class(workers, queued_max) } else { fifo(workers, queued_max) };
        let (room, workers) = ((workers + queued_max) as usize, workers as usize);
        let mut model = Model { room, workers, waiting: Vec::new(), in_flight: 0 };
        for (entry, step) in (0..).zip(steps) {
            match step {
                Step::Enqueue { class, is_extra } => {
                    let demand = Demand { class: DeadlineClass(class), ..Demand::default() };
                    let rank = if ranked { (is_extra, class) } else { (false, 0) };
                    let has_room = queue.has_room();
                    let call = QueuedCall { keys: 1, is_extra };
                    let is_queued = queue.enqueue(Instant::ZERO, entry, &demand, call);
                    prop_assert_eq!(is_queued, model.enqueue(rank, entry));
                    prop_assert_eq!(is_queued, has_room);
                }
                Step::Cancel(entry) => prop_assert_eq!(queue.cancel(entry), model.cancel(entry)),
                Step::StartNext => prop_assert_eq!(start(&mut queue), model.start_next()),
                Step::Complete => {
                    queue.complete(0, None);
                    model.in_flight = model.in_flight.saturating_sub(1);
                }
                Step::TakeAll => {
                    prop_assert_eq!(queue.take_all(), model.in_order());
                    model.waiting.clear();
                }
            }
            prop_assert_eq!(queue.entries().collect::<Vec<_>>(), model.in_order());
            prop_assert_eq!(queue.queued() as usize, model.waiting.len());
            prop_assert_eq!(queue.in_flight() as usize, model.in_flight);
        }
    }
}
