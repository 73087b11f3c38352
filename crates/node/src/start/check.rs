//! Signs of life of a running node, for a watchdog.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::Node;
use crate::threads::Worker;

impl Node {
    /// Returns true if all loops of the node have turned since the last call that returned true:
    /// every thread of the listeners, the control loop, the housekeeper, and the runtime of
    /// gateway and admin API. They are then asked anew. The first call asks and returns true.
    ///
    /// Never waits: call it again and again, at an interval that a loop never takes for a turn.
    #[must_use]
    pub fn is_responsive(&self) -> bool {
        let all_answered = self.listeners().is_checked()
            && self.workers.iter().all(Worker::is_checked)
            && self.runtime_checked.swap(false, Relaxed);
        if all_answered {
            self.listeners().check();
            self.workers.iter().for_each(Worker::check);
            let checked = Arc::clone(&self.runtime_checked);
            self.runtime.spawn(async move { checked.store(true, Relaxed) });
        }
        all_answered
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::setup::Setup;
    use sherwood_config::Flags;

    /// Longest wait for an event; reached only by a failing test.
    const TIMEOUT: Duration = Duration::from_secs(60);

    #[track_caller]
    fn wait_until(condition: impl Fn() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < TIMEOUT, "it never happens");
            std::thread::yield_now();
        }
    }

    #[test]
    fn node_is_not_responsive_while_a_thread_is_stuck() {
        let flags = Flags {
            admin: Some("127.0.0.1:0".to_owned()),
            memcached: Some("127.0.0.1:0".to_owned()),
            ..Flags::default()
        };
        let config =
            sherwood_config::parse("a.toml", "[control]\npolicy = \"static\"", &flags, &["static"]).unwrap();
        let node = Node::start(Setup::from_config(&config).unwrap()).unwrap();
        assert!(node.is_responsive(), "the first call only asks");
        wait_until(|| node.is_responsive());
        wait_until(|| node.is_responsive());
        // The control loop waits for this lock in its next round.
        let stuck = node.core.control();
        wait_until(|| {
            let others_answer =
                node.listeners().is_checked() && node.workers.iter().skip(1).all(Worker::is_checked);
            !node.is_responsive() && others_answer && !node.workers[0].is_checked()
        });
        drop(stuck);
        wait_until(|| node.is_responsive());
        node.stop();
    }
}
