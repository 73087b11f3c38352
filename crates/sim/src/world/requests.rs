//! Requests: from their start, through the network gate and the cache, to their end.

use std::time::Duration;

use sherwood_cache::Access;
use sherwood_model::{FinishedRequest, Instant};
use sherwood_path::Request;

use super::family::{Ask, Family};
use super::{Live, Simulation};

impl<F: Family> Simulation<F> {
    /// Begins a request that was sent to a node at `began`. The request [arrives](Self::arrive)
    /// there later.
    pub(crate) fn begin(&mut self, node: u16, began: Instant, client: F::Client) -> u32 {
        self.began += 1;
        self.live.insert(Live { node, began, request: None, writes: 0, client })
    }

    /// Looks a request up in its node's cache, fetches the misses, and begins the writes.
    pub(super) fn start(&mut self, number: u32) {
        let now = self.now;
        let Some(live) = self.live.get_mut(number) else { return };
        let Ask { queries, writes } = self.family.ask(now, &mut live.client);
        self.queries += queries.iter().map(|query| query.keys.len() as u64).sum::<u64>();
        let (node, mut request) = (live.node, Request::start(live.began, queries));
        let cache = &self.nodes[usize::from(node)].cache;
        let fetches = request.look_up(cache, &Access::at(now), |_, _, item| item.value.len() as u32);
        let finished = request.finished().filter(|_| writes.is_empty());
        (live.request, live.writes) = (Some(request), writes.len() as u32);
        self.family.looked_up(now, live);
        if let Some(finished) = finished {
            self.finish(number, finished);
        }
        for fetch in fetches {
            self.fetch(number, node, fetch);
        }
        for write in writes {
            self.write_for(number, node, write);
        }
    }

    /// Ends a request that is refused before it starts. `retry_in` is the time after which it may
    /// be tried again, if known.
    pub(super) fn refuse(&mut self, number: u32, retry_in: Option<Duration>) {
        let Some(live) = self.live.get_mut(number) else { return };
        F::refused(&mut live.client, retry_in);
        let finished = FinishedRequest::new(self.now - live.began, None).of(F::tenant(&live.client));
        self.finish(number, finished);
    }

    /// Ends a request whose reads and writes have all ended.
    pub(super) fn finish(&mut self, number: u32, finished: FinishedRequest) {
        let Some(live) = self.live.remove(number) else { return };
        self.ended += 1;
        F::finish(self, live, finished);
    }
}
