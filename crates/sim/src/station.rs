//! The queue in front of a backend's workers.
//!
//! It is the whole feedback of the simulation: what misses the cache waits here, and how long it
//! waits is what the next decision is about. So it knows nothing of caches or backends and is
//! tested by itself, against the closed forms of queueing theory.

use std::collections::VecDeque;

/// A number of workers that serve one queue, first come first served.
///
/// The station knows who waits and who may begin, and no time: whoever drives it draws a service
/// time for every job that begins, and says when that has passed.
///
/// Each step is O(1) but [`Self::give_up`]. Memory is proportional to the jobs that wait, which the
/// driver bounds.
#[derive(Clone, Debug)]
pub struct Station<J> {
    idle: u32,
    waiting: VecDeque<J>,
}

impl<J> Station<J> {
    /// A station of `workers` idle workers.
    #[must_use]
    pub fn new(workers: u32) -> Self {
        Self { idle: workers, waiting: VecDeque::new() }
    }

    /// A job arrives; it is given back if a worker begins it now.
    pub fn arrive(&mut self, job: J) -> Option<J> {
        if self.idle > 0 {
            self.idle -= 1;
            return Some(job);
        }
        self.waiting.push_back(job);
        None
    }

    /// A worker is done; the job it begins next, if one waits.
    pub fn finish(&mut self) -> Option<J> {
        let next = self.waiting.pop_front();
        self.idle += u32::from(next.is_none());
        next
    }

    /// Takes the first job out that waits and is `wanted`: whoever sent it gave up. One that was
    /// begun keeps its worker, as a remote server notices nothing. O(jobs before it), none for a
    /// job that waited longest.
    pub fn give_up(&mut self, wanted: impl Fn(&J) -> bool) -> Option<J> {
        let position = self.waiting.iter().position(wanted)?;
        self.waiting.remove(position)
    }

    /// Jobs that wait for a worker.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_begin_in_the_order_they_came_and_workers_never_idle_beside_a_queue() {
        let mut station = Station::new(2);
        assert_eq!((station.arrive(1), station.arrive(2), station.arrive(3)), (Some(1), Some(2), None));
        assert_eq!((station.arrive(4), station.waiting()), (None, 2));
        assert_eq!((station.finish(), station.finish(), station.finish()), (Some(3), Some(4), None));
        assert_eq!((station.arrive(5), station.arrive(6)), (Some(5), None));
    }

    #[test]
    fn who_gives_up_leaves_the_queue_and_not_a_worker() {
        let mut station = Station::new(1);
        assert_eq!((station.arrive(1), station.arrive(2), station.arrive(3)), (Some(1), None, None));
        assert_eq!(station.give_up(|&job| job == 1), None);
        assert_eq!(station.give_up(|&job| job == 2), Some(2));
        assert_eq!((station.finish(), station.finish()), (Some(3), None));
    }
}
