//! Nodes with caches and clocks of their own, one store, and a bus with faults.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sherwood_model::{Instant, PartitionId, SeededState, SplitMix64};

use crate::peers::{
    Announced, Beat, PeerAction, PeerMessage, PeerOptions, Peers, SharedTerms, SharedValues, WithoutBus,
};

const NODES: usize = 3;
const KEYS: u64 = 6;
const P: PartitionId = PartitionId(0);
const STALE: Duration = ms(2_000);
/// Times of farewell and greeting, a tenth of the real ones.
const FAREWELL: Duration = ms(6_000);
const GREETING: Duration = ms(6_100);
const END: Instant = Instant::from_millis(60_000);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A fault of the implementation, put in to see that the simulation finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    None,
    /// The time of receipt is taken for the echoed time.
    ReceiptTaken,
    /// The number of a beat is not compared with the changes received.
    NumbersNotCompared,
    /// A farewell is relied on after the next process was heard.
    FarewellKept,
    /// Writes are acknowledged before the greeting was answered.
    WritesBeforeAnswer,
    /// Values are not dropped when changes were lost.
    NothingDropped,
    /// The client is told some time before the change is announced.
    ToldFirst,
    /// Fetches in flight are not fenced by a received change.
    NotFenced,
    /// The age of a value counts from the end of its fetch.
    AgeFromAnswer,
    /// Values are trusted again once a dead node is removed.
    RemovedForgotten,
}

impl Flaw {
    pub(super) const ALL: [Self; 9] = [
        Self::ReceiptTaken,
        Self::NumbersNotCompared,
        Self::FarewellKept,
        Self::WritesBeforeAnswer,
        Self::NothingDropped,
        Self::ToldFirst,
        Self::NotFenced,
        Self::AgeFromAnswer,
        Self::RemovedForgotten,
    ];
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Key(u8);

impl Announced for Key {
    fn bytes(&self) -> usize {
        1
    }
}

#[derive(Clone, Debug)]
enum Event {
    Wake(usize, u64),
    Message {
        to: usize,
        from: usize,
        message: PeerMessage<Key>,
    },
    Read(usize),
    Fetch(Fetch),
    FetchEnd(Fetch, u64),
    Write(usize),
    /// The store applies a write.
    Apply(Write),
    WriteEnd(Write),
    Announce(Write),
    Crash(usize),
    Leave(usize),
    Start(usize),
    /// A node ends for ever, and the others are told.
    Remove(usize),
    Reload(usize),
    Pause(usize),
    Cut,
    Heal,
}

#[derive(Clone, Copy, Debug)]
struct Fetch {
    node: usize,
    process: u64,
    key: u8,
    began: Instant,
    changes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Write {
    node: usize,
    process: u64,
    key: u8,
    began: Instant,
    changes: u64,
    /// Version that the store gave it; 0 before.
    version: u64,
    is_unknown: bool,
}

struct Node {
    /// Number of starts; a process ignores events of the one before.
    process: u64,
    peers: Option<Peers<Key>>,
    values: Arc<SharedValues>,
    cache: BTreeMap<u8, u64>,
    /// Changes of each key since the start, which fence fetches in flight.
    changes: BTreeMap<u8, u64>,
    paused_until: Instant,
    /// The clock: nanoseconds at the origin of true time, and its rate in millionths.
    offset: u64,
    rate: u64,
    number: u64,
    wakes_at: Instant,
}

pub(super) struct World {
    flaw: Flaw,
    random: SplitMix64,
    now: Instant,
    events: BTreeMap<(Instant, u64), Event>,
    planned: u64,
    nodes: Vec<Node>,
    store: BTreeMap<u8, u64>,
    version: u64,
    /// Acknowledged writes of each key: time of the acknowledgement and version.
    acknowledged: BTreeMap<u8, Vec<(Instant, u64)>>,
    /// Nodes that the bus does not reach.
    cut: BTreeSet<usize>,
    cut_before: bool,
    /// The node that has ended for ever.
    removed: Option<usize>,
    loss_percent: u64,
    pub(super) violation: Option<String>,
    pub(super) seen: BTreeMap<&'static str, u64>,
}

impl World {
    pub(super) fn new(seed: u64, flaw: Flaw) -> Self {
        let mut random = SplitMix64::new(seed);
        let node = |_| Node {
            process: 0,
            peers: None,
            values: values(),
            cache: BTreeMap::new(),
            changes: BTreeMap::new(),
            paused_until: Instant::ZERO,
            offset: 1_000_000_000 * (1 + random.next_u64() % 1_000),
            rate: 995_000 + random.next_u64() % 10_000,
            number: 1_000,
            wakes_at: Instant::NEVER,
        };
        let nodes = (0..NODES).map(node).collect();
        let mut world = Self {
            flaw,
            random,
            now: Instant::ZERO,
            events: BTreeMap::new(),
            planned: 0,
            nodes,
            store: BTreeMap::new(),
            version: 0,
            acknowledged: BTreeMap::new(),
            cut: BTreeSet::new(),
            cut_before: false,
            removed: None,
            loss_percent: [0, 2, 20][seed as usize % 3],
            violation: None,
            seen: BTreeMap::new(),
        };
        world.plan_all();
        world
    }

    fn plan_all(&mut self) {
        for node in 0..NODES {
            let start = self.upto(ms(500));
            self.plan(start, Event::Start(node));
        }
        for _ in 0..700 {
            let (at, node) = (self.upto(END - Instant::ZERO), self.below(NODES as u64) as usize);
            self.plan(at, Event::Read(node));
        }
        for _ in 0..120 {
            let (at, node) = (self.upto(END - Instant::ZERO), self.below(NODES as u64) as usize);
            self.plan(at, Event::Write(node));
        }
        for _ in 0..5 {
            let (at, node) = (ms(2_000) + self.upto(ms(50_000)), self.below(NODES as u64) as usize);
            let event = match self.below(6) {
                0 => Event::Crash(node),
                5 => Event::Remove(node),
                1 | 2 => Event::Leave(node),
                3 => Event::Pause(node),
                _ => Event::Cut,
            };
            self.plan(at, event);
        }
    }

    pub(super) fn run(mut self) -> Self {
        while let Some(((at, _), event)) = self.events.pop_first() {
            if at > END || self.violation.is_some() {
                break;
            }
            self.now = at;
            self.happen(event);
        }
        self
    }

    fn happen(&mut self, event: Event) {
        let node = match &event {
            Event::Wake(node, _) | Event::Read(node) | Event::Write(node) | Event::Reload(node) => {
                Some(*node)
            }
            Event::Message { to, .. } => Some(*to),
            Event::FetchEnd(Fetch { node, .. }, _) | Event::WriteEnd(Write { node, .. }) => Some(*node),
            _ => None,
        };
        if let Some(until) = node.map(|node| self.nodes[node].paused_until).filter(|until| *until > self.now)
        {
            return self.plan_at(until, event);
        }
        match event {
            Event::Wake(node, process) => self.wake(node, process),
            Event::Message { to, from, message } => self.receive(to, from, message),
            Event::Read(node) => self.read(node),
            Event::Fetch(fetch) => self.fetch(fetch),
            Event::FetchEnd(fetch, version) => self.end_fetch(fetch, version),
            Event::Write(node) => self.write(node),
            Event::Apply(write) => self.apply(write),
            Event::WriteEnd(write) => self.end_write(write),
            Event::Announce(write) => self.announce(write),
            Event::Crash(node) => self.end_process(node, "node crashed"),
            Event::Leave(node) => {
                let now = self.local(node);
                if let Some(peers) = &mut self.nodes[node].peers {
                    peers.leave(now);
                    self.carry_out(node);
                    self.end_process(node, "node left");
                    // The bus fails while others may rely on the farewell.
                    if self.below(2) == 0 {
                        let cut = ms(30) + self.upto(ms(1_000));
                        self.plan(cut, Event::Cut);
                    }
                }
            }
            Event::Start(node) => self.start(node),
            Event::Remove(node) => self.remove(node),
            Event::Reload(node) => self.reload(node),
            Event::Pause(node) => {
                self.count("node paused");
                self.nodes[node].paused_until = self.now + self.upto(ms(10_000));
            }
            Event::Cut => {
                self.count("bus cut");
                let node = self.below(NODES as u64 + 1) as usize;
                self.cut.extend(if node == NODES { 0..NODES } else { node..node + 1 });
                self.cut_before = true;
                let length = self.upto(ms(12_000));
                self.plan(length, Event::Heal);
            }
            Event::Heal => self.cut.clear(),
        }
    }

    fn start(&mut self, node: usize) {
        if self.nodes[node].peers.is_some() || self.removed == Some(node) {
            return;
        }
        let now = self.local(node);
        let steps_back = self.below(8) == 0;
        let names = self.names();
        let mut options = PeerOptions::new(name(node), names);
        (options.farewell, options.greeting) = (FAREWELL, GREETING);
        options.changes_kept_max = if self.below(2) == 0 { 3 } else { 1_000 };
        let to = &mut self.nodes[node];
        to.number = if steps_back { to.number.saturating_sub(5) } else { to.number + 10 };
        to.process += 1;
        // No two processes of a node start with the same number.
        let incarnation = to.number * 1_000 + to.process;
        to.values = values();
        to.cache.clear();
        to.changes.clear();
        to.peers = Some(Peers::new(options, incarnation, now, vec![Arc::clone(&to.values)]));
        if steps_back {
            self.count("clock stepped back");
        }
        self.nodes[node].wakes_at = Instant::NEVER;
        self.rearm(node);
    }

    /// Ends a node for ever; the others go on with another configuration some time later.
    fn remove(&mut self, node: usize) {
        if self.removed.is_some() {
            return;
        }
        self.removed = Some(node);
        if self.below(2) == 0 {
            self.happen(Event::Leave(node));
        }
        self.end_process(node, "node crashed");
        for other in (0..NODES).filter(|other| *other != node) {
            let after = self.upto(ms(8_000));
            self.plan(after, Event::Reload(other));
        }
    }

    /// Has a node go on with the nodes that have not ended.
    fn reload(&mut self, node: usize) {
        let (now, names) = (self.local(node), self.names());
        let Some(peers) = &mut self.nodes[node].peers else { return };
        peers.set_nodes(now, names);
        if self.flaw == Flaw::RemovedForgotten {
            peers.actions.retain(|action| !matches!(action, PeerAction::Drop(_)));
            peers.removed_until = None;
            peers.publish(now);
        }
        self.count("node removed");
        self.carry_out(node);
    }

    fn names(&self) -> Vec<String> {
        (0..NODES).filter(|node| self.removed != Some(*node)).map(name).collect()
    }

    fn end_process(&mut self, node: usize, what: &'static str) {
        if self.nodes[node].peers.take().is_some() {
            self.count(what);
            let down = if self.below(3) == 0 { self.upto(ms(9_000)) } else { self.upto(ms(300)) };
            self.plan(down, Event::Start(node));
        }
    }

    fn wake(&mut self, node: usize, process: u64) {
        if self.nodes[node].process != process {
            return;
        }
        self.nodes[node].wakes_at = Instant::NEVER;
        let now = self.local(node);
        if let Some(peers) = &mut self.nodes[node].peers {
            peers.handle_timeout(now);
            self.carry_out(node);
        }
    }

    fn receive(&mut self, to: usize, from: usize, mut message: PeerMessage<Key>) {
        let now = self.local(to);
        let trusted = self.nodes[to].values.trusted_until() >= now;
        let Some(peers) = &mut self.nodes[to].peers else { return };
        if let PeerMessage::Beat(beat) = &mut message {
            spoil(beat, self.flaw, &name(to), now);
        }
        let relied = peers.peers.get(&name(from)).map_or(Instant::ZERO, |peer| peer.complete_until);
        let changes = peers.handle_message(now, &name(from), &message).to_vec();
        let peer = peers.peers.get_mut(&name(from)).filter(|_| self.flaw == Flaw::FarewellKept);
        if let Some(peer) = peer {
            peer.complete_until = peer.complete_until.max(relied);
            peers.publish(now);
        }
        if relied > now {
            self.count("farewell relied on");
        }
        for Key(key) in changes {
            self.nodes[to].cache.remove(&key);
            if self.flaw != Flaw::NotFenced {
                *self.nodes[to].changes.entry(key).or_default() += 1;
            }
        }
        if self.cut_before && !trusted && self.nodes[to].values.trusted_until() >= now {
            self.count("trusted again after a cut");
        }
        self.carry_out(to);
    }

    fn carry_out(&mut self, node: usize) {
        while let Some(action) = self.nodes[node].peers.as_mut().and_then(Peers::poll_action) {
            match action {
                PeerAction::Send(message) => self.send(node, &message),
                PeerAction::Drop(_) => {
                    self.count("values dropped");
                    if self.flaw != Flaw::NothingDropped {
                        self.nodes[node].cache.clear();
                        (0..KEYS as u8).for_each(|key| {
                            *self.nodes[node].changes.entry(key).or_default() += 1;
                        });
                    }
                }
                PeerAction::Report(_) => {}
            }
        }
        self.rearm(node);
    }

    fn send(&mut self, from: usize, message: &PeerMessage<Key>) {
        if let PeerMessage::Beat(Beat { peers, .. }) = message
            && peers.iter().any(|peer| peer.missing.is_some())
        {
            self.count("changes sent again");
        }
        for to in (0..NODES).filter(|to| *to != from) {
            let copies = if self.below(20) == 0 { 2 } else { 1 };
            for copy in 0..copies {
                let is_cut = self.cut.contains(&from) || self.cut.contains(&to);
                if is_cut || self.below(100) < self.loss_percent {
                    self.count("message lost");
                    continue;
                }
                if copy > 0 {
                    self.count("message repeated");
                }
                let delay = if self.below(10) == 0 { self.upto(ms(3_000)) } else { self.upto(ms(20)) };
                let message = message.clone();
                self.plan(delay, Event::Message { to, from, message });
            }
        }
    }

    fn read(&mut self, node: usize) {
        if self.nodes[node].peers.is_none() {
            return;
        }
        let (key, now) = (self.below(KEYS) as u8, self.local(node));
        let of = &self.nodes[node];
        let hit = of.cache.get(&key).copied();
        match hit.filter(|_| of.values.stale_since(now, P, &[key]).is_none()) {
            Some(version) => {
                self.count("read hit");
                self.check(node, key, version);
            }
            None => {
                let changes = of.changes.get(&key).copied().unwrap_or(0);
                let fetch = Fetch { node, process: of.process, key, began: now, changes };
                self.count(if hit.is_some() { "read untrusted" } else { "read fetched" });
                let sent = self.upto(ms(60));
                self.plan(sent, Event::Fetch(fetch));
            }
        }
    }

    fn check(&mut self, node: usize, key: u8, version: u64) {
        let acknowledged = self.acknowledged.get(&key).into_iter().flatten();
        let required =
            acknowledged.filter(|(at, _)| *at + STALE < self.now).map(|(_, version)| *version).max();
        if required.is_some_and(|required| version < required) {
            self.violation = Some(format!(
                "at {:?} node {node} reads {version} of key {key}, after {required:?}",
                self.now
            ));
        }
    }

    fn fetch(&mut self, fetch: Fetch) {
        let version = self.store.get(&fetch.key).copied().unwrap_or(0);
        let answered = self.upto(ms(900));
        self.plan(answered, Event::FetchEnd(fetch, version));
    }

    fn end_fetch(&mut self, Fetch { node, process, key, began, changes }: Fetch, version: u64) {
        let now = self.local(node);
        let of = &mut self.nodes[node];
        let is_current = of.changes.get(&key).copied().unwrap_or(0) == changes;
        if of.process == process && of.peers.is_some() && is_current {
            of.cache.insert(key, version);
            let began = if self.flaw == Flaw::AgeFromAnswer { now } else { began };
            of.values.note_fetched(now, P, &[key], began);
        }
    }

    fn write(&mut self, node: usize) {
        if self.nodes[node].peers.is_none() {
            return;
        }
        let (key, now) = (self.below(KEYS) as u8, self.local(node));
        if self.nodes[node].values.writes_from(now).is_some() && self.flaw != Flaw::WritesBeforeAnswer {
            self.count("write refused");
            return;
        }
        let is_unknown = self.below(8) == 0;
        let of = &mut self.nodes[node];
        // A write in flight fences fetches of its key.
        let changes = of.changes.entry(key).or_default();
        *changes += 1;
        let (process, changes) = (of.process, *changes);
        let write = Write { node, process, key, began: now, changes, version: 0, is_unknown };
        let applied = self.upto(ms(200));
        if is_unknown {
            let ended = self.upto(ms(200));
            self.plan(ended, Event::WriteEnd(write));
        }
        self.plan(applied, Event::Apply(write));
    }

    fn apply(&mut self, write: Write) {
        self.version += 1;
        self.store.insert(write.key, self.version);
        if !write.is_unknown {
            let answered = self.upto(ms(100));
            self.plan(answered, Event::WriteEnd(Write { version: self.version, ..write }));
        }
    }

    fn end_write(&mut self, write: Write) {
        let Write { node, process, key, began, changes, version, is_unknown } = write;
        let now = self.local(node);
        let of = &mut self.nodes[node];
        if of.process != process || of.peers.is_none() {
            return;
        }
        let count = of.changes.entry(key).or_default();
        let is_kept = !is_unknown && *count == changes;
        *count += 1;
        of.cache.remove(&key);
        if is_kept {
            of.cache.insert(key, version);
            of.values.note_fetched(now, P, &[key], began);
            self.count("write kept");
        }
        let acknowledged = self.acknowledged.entry(key).or_default();
        if is_unknown {
            self.count("write with an unknown outcome");
        } else {
            acknowledged.push((self.now, version));
            self.count("write acknowledged");
            if self.flaw == Flaw::ToldFirst {
                let later = self.upto(ms(4_000));
                return self.plan(later, Event::Announce(write));
            }
        }
        self.announce(write);
    }

    fn announce(&mut self, Write { node, process, key, .. }: Write) {
        if self.nodes[node].process != process {
            return;
        }
        let Some(peers) = &mut self.nodes[node].peers else { return };
        peers.announce(Key(key));
        self.carry_out(node);
    }

    /// Plans the node's next beat.
    fn rearm(&mut self, node: usize) {
        let Node { peers, offset, rate, process, wakes_at, .. } = &mut self.nodes[node];
        let Some(peers) = peers else { return };
        let local = peers.next_timeout().as_nanos().saturating_sub(*offset);
        let at = Instant::from_nanos((u128::from(local) * 1_000_000).div_ceil(u128::from(*rate)) as u64 + 1);
        if at < *wakes_at {
            *wakes_at = at;
            let event = Event::Wake(node, *process);
            self.plan_at(at, event);
        }
    }

    /// Returns the time of a node's own clock.
    fn local(&self, node: usize) -> Instant {
        let Node { offset, rate, .. } = &self.nodes[node];
        Instant::from_nanos(offset + (u128::from(self.now.as_nanos()) * u128::from(*rate) / 1_000_000) as u64)
    }

    fn plan(&mut self, after: Duration, event: Event) {
        self.plan_at(self.now + after, event);
    }

    fn plan_at(&mut self, at: Instant, event: Event) {
        self.planned += 1;
        self.events.insert((at.max(self.now), self.planned), event);
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.next_u64() % bound
    }

    fn upto(&mut self, most: Duration) -> Duration {
        Duration::from_nanos(self.below(most.as_nanos() as u64))
    }

    fn count(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }
}

/// Changes a beat as an implementation with this flaw would read it.
fn spoil(beat: &mut Beat, flaw: Flaw, own: &str, now: Instant) {
    match flaw {
        Flaw::ReceiptTaken => {
            let own = beat.peers.iter_mut().find(|peer| peer.node == own && peer.stamp_ns > 0);
            own.into_iter().for_each(|own| own.stamp_ns = now.as_nanos());
        }
        Flaw::NumbersNotCompared => (beat.first, beat.last) = (1, 0),
        _ => {}
    }
}

fn values() -> Arc<SharedValues> {
    let terms = SharedTerms { stale: STALE, without_bus: WithoutBus::Bounded };
    Arc::new(SharedValues::new(terms, SeededState::new(5)))
}

fn name(node: usize) -> String {
    ["a", "b", "c"][node].to_owned()
}
