//! The nodes, the bus between them, and the faults of both.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use sherwood_model::{Instant, ResourceId};

use super::super::super::{RateAction, RateAsk, RateGrant};
use super::clock::Clock;
use super::node::{Node, TENANTS, index};
use super::plan::{Change, Configuration, END, FAULTS_END, NAMES, pick, time};
use super::{Flaw, Seen};
use crate::draws::Draws;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Pauses of nodes and cuts of the bus while configurations differ: shorter than the time after
/// which a silent node counts as stopped.
const SHORT: Duration = ms(600);

enum Event {
    Wake(usize, u64),
    Act(usize, u64),
    Deliver(usize, usize, Message),
    Offer(usize),
    Pause(usize),
    Kill(usize),
    Restart(usize),
    Change(usize),
    Cut(Duration),
}

#[derive(Clone, Debug)]
enum Message {
    Ask(RateAsk),
    Grant(RateGrant),
}

pub(super) struct World {
    flaw: Flaw,
    told: bool,
    draws: Draws,
    now: Instant,
    events: BinaryHeap<Reverse<(Instant, usize)>>,
    pending: Vec<Option<Event>>,
    nodes: Vec<Node>,
    change: Change,
    lends: bool,
    cut_until: Instant,
    /// Of a hundred messages, those that get lost and those that are late.
    bad: usize,
    seen: Seen,
}

impl World {
    pub(super) fn new(seed: u64, flaw: Flaw, told: bool) -> Self {
        let mut draws = Draws::default();
        draws.stir(seed);
        let change = Change::draw(&mut draws);
        let bad = [0, 3, 15][pick(&mut draws, 3)];
        let lends = pick(&mut draws, 2) == 0;
        let nodes = NAMES.iter().map(|name| Node::new(name)).collect();
        let (events, pending, now) = (BinaryHeap::new(), Vec::new(), Instant::from_millis(1));
        let (seen, cut_until) = (Seen::new(), Instant::ZERO);
        let mut world =
            Self { flaw, told, draws, now, events, pending, nodes, change, lends, cut_until, bad, seen };
        world.plan_faults();
        world
    }

    fn plan_faults(&mut self) {
        let length = FAULTS_END - self.now - ms(1_000);
        let changes_from = self.now + ms(1_200) + time(&mut self.draws, ms(1_500));
        for node in 0..NAMES.len() {
            let had = self.has(&self.change.before, node);
            let stays = self.has(&self.change.after, node);
            match (had, stays) {
                (true, true) => {
                    let at = self.now + time(&mut self.draws, ms(200));
                    self.plan(at, Event::Restart(node));
                    if self.change.is_one {
                        let at = changes_from + time(&mut self.draws, ms(3_000));
                        self.plan(at, Event::Change(node));
                    }
                }
                (true, false) => {
                    self.plan(self.now, Event::Restart(node));
                    self.plan(changes_from - ms(1), Event::Kill(node));
                }
                (false, true) => {
                    let at = changes_from + time(&mut self.draws, ms(3_000));
                    self.plan(at, Event::Change(node));
                }
                (false, false) => continue,
            }
            for _ in 0..pick(&mut self.draws, 4) {
                let at = self.now + time(&mut self.draws, length);
                let fault =
                    if pick(&mut self.draws, 2) == 0 { Event::Kill(node) } else { Event::Pause(node) };
                self.plan(at, fault);
            }
            self.plan(self.now, Event::Offer(node));
        }
        if pick(&mut self.draws, 3) == 0 {
            let at = self.now + time(&mut self.draws, length);
            let cut = self.length();
            self.plan(at, Event::Cut(cut));
        }
    }

    /// Draws the length of a pause or a cut.
    fn length(&mut self) -> Duration {
        let most = if self.change.is_one { SHORT } else { ms(3_000) };
        time(&mut self.draws, most)
    }

    fn has(&self, configuration: &Configuration, node: usize) -> bool {
        configuration.nodes.iter().any(|other| *other.name == *NAMES[node])
    }

    /// Returns the configuration that a node has now.
    fn configuration(&self, node: usize) -> &Configuration {
        if self.nodes[node].is_changed { &self.change.after } else { &self.change.before }
    }

    fn plan(&mut self, at: Instant, event: Event) {
        self.events.push(Reverse((at, self.pending.len())));
        self.pending.push(Some(event));
    }

    fn count(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn tell(&self, text: impl FnOnce() -> String) {
        if self.told {
            eprintln!("{:>9.3} ms  {}", self.now.as_nanos() as f64 / 1e6, text());
        }
    }

    /// Runs to the end; returns the number of each event, or the first violation.
    pub(super) fn run(mut self) -> Result<Seen, String> {
        while let Some(Reverse((at, number))) = self.events.pop() {
            if at >= END {
                break;
            }
            self.now = at;
            let event = self.pending[number].take().expect("each event happens once");
            self.handle(event)?;
        }
        self.check_progress()?;
        Ok(self.seen)
    }

    fn handle(&mut self, event: Event) -> Result<(), String> {
        let now = self.now;
        match event {
            Event::Wake(node, process) => self.when_awake(node, process, Event::Wake, Self::wake)?,
            Event::Act(node, process) => self.when_awake(node, process, Event::Act, Self::act)?,
            Event::Deliver(to, from, message) => self.deliver(to, from, message),
            Event::Offer(node) => self.offer(node),
            Event::Pause(node) => {
                self.nodes[node].paused_until = (now + self.length()).min(FAULTS_END);
                self.count("node paused");
                self.tell(|| format!("{} pauses until {:?}", NAMES[node], self.nodes[node].paused_until));
            }
            Event::Kill(node) => {
                self.tell(|| format!("{} is killed", NAMES[node]));
                self.count("node killed");
                self.nodes[node].process = None;
                let is_gone = self.change.is_one && !self.has(&self.change.after, node);
                let down = time(&mut self.draws, ms(800));
                if !is_gone {
                    self.plan(now + down, Event::Restart(node));
                }
            }
            Event::Restart(node) => self.restart(node),
            Event::Change(node) => self.change_node(node),
            Event::Cut(length) => {
                self.cut_until = (now + length).min(FAULTS_END);
                self.count("bus cut");
                self.tell(|| format!("the bus is cut for {length:?}"));
            }
        }
        Ok(())
    }

    /// Carries out an event of a process, or later if the node pauses.
    fn when_awake(
        &mut self,
        node: usize,
        process: u64,
        again: fn(usize, u64) -> Event,
        then: fn(&mut Self, usize) -> Result<(), String>,
    ) -> Result<(), String> {
        let Node { incarnation, paused_until, process: running, .. } = &self.nodes[node];
        if *incarnation != process || running.is_none() {
            return Ok(());
        }
        if *paused_until > self.now {
            let at = *paused_until + time(&mut self.draws, ms(2));
            self.plan(at, again(node, process));
            return Ok(());
        }
        then(self, node)
    }

    fn wake(&mut self, node: usize) -> Result<(), String> {
        self.note_ended_rates(node);
        self.nodes[node].wake(self.now);
        self.act_soon(node);
        let Node { process, incarnation, .. } = &self.nodes[node];
        let process = process.as_ref().expect("it runs");
        let at = process.clock.time_of(process.rates.next_timeout());
        let (incarnation, late) = (*incarnation, time(&mut self.draws, ms(3)));
        self.plan(at.max(self.now) + late, Event::Wake(node, incarnation));
        Ok(())
    }

    fn note_ended_rates(&mut self, node: usize) {
        let process = self.nodes[node].process.as_ref().expect("it runs");
        let shown = process.clock.shows(self.now);
        let ended = process.set.iter().filter(|set| set.ends_at <= shown).count() as u64;
        *self.seen.entry("rates ended before others were set").or_default() += ended;
    }

    /// Takes over new actions, and plans when the next one is carried out.
    fn act_soon(&mut self, node: usize) {
        let Node { process, incarnation, .. } = &mut self.nodes[node];
        let (Some(process), incarnation) = (process, *incarnation) else { return };
        process.poll();
        if process.is_acting || process.actions.is_empty() {
            return;
        }
        process.is_acting = true;
        let delay = match pick(&mut self.draws, 40) {
            0 => {
                self.count("driver stopped between actions");
                time(&mut self.draws, ms(100))
            }
            _ => time(&mut self.draws, Duration::from_micros(200)),
        };
        self.plan(self.now + delay, Event::Act(node, incarnation));
    }

    fn act(&mut self, node: usize) -> Result<(), String> {
        let process = self.nodes[node].process.as_mut().expect("it runs");
        process.is_acting = false;
        let action = process.actions.pop_front();
        match action {
            None => {}
            Some(RateAction::SetRates(resource, rates)) => {
                self.tell(|| format!("{} sets {resource:?} to {rates:?}", NAMES[node]));
                let process = self.nodes[node].process.as_mut().expect("it runs");
                if rates.ends_at < Instant::NEVER {
                    *self.seen.entry("rates borrowed").or_default() += 1;
                }
                process.set[resource.index()] = rates;
                self.check_sums(node, resource)?;
            }
            Some(RateAction::Ask(to, ask)) => self.send(node, index(&to), Message::Ask(ask)),
            Some(RateAction::Grant(to, grant)) => self.send(node, index(&to), Message::Grant(grant)),
        }
        self.act_soon(node);
        Ok(())
    }

    fn send(&mut self, from: usize, to: usize, message: Message) {
        let has_faults = self.now < FAULTS_END;
        if self.now < self.cut_until || (has_faults && pick(&mut self.draws, 100) < self.bad) {
            return self.count("message lost");
        }
        let copies = if has_faults && pick(&mut self.draws, 20) == 0 { 2 } else { 1 };
        for copy in 0..copies {
            let is_late = has_faults && pick(&mut self.draws, 100) < self.bad;
            let most = match pick(&mut self.draws, 4) {
                _ if is_late => ms(1_500),
                0 => ms(60),
                1 => ms(5),
                _ => ms(1),
            };
            self.count(if is_late { "message late" } else { "message sent" });
            self.count(if copy > 0 { "message repeated" } else { "message sent once" });
            let delay = time(&mut self.draws, most);
            self.plan(self.now + delay, Event::Deliver(to, from, message.clone()));
        }
    }

    fn deliver(&mut self, to: usize, from: usize, message: Message) {
        self.tell(|| format!("{} receives from {}: {message:?}", NAMES[to], NAMES[from]));
        let Node { process, paused_until, incarnation, .. } = &mut self.nodes[to];
        let Some(process) = process else { return };
        if *paused_until > self.now {
            let at = *paused_until + time(&mut self.draws, ms(2));
            return self.plan(at, Event::Deliver(to, from, message));
        }
        let shown = process.clock.shows(self.now);
        match message {
            Message::Ask(ask) => process.rates.handle_ask(shown, NAMES[from], &ask),
            Message::Grant(mut grant) => {
                let is_to_earlier = grant.incarnation != *incarnation;
                if self.flaw == Flaw::FromReceipt {
                    grant.stamp = shown;
                }
                process.rates.handle_grant(shown, NAMES[from], &grant);
                if is_to_earlier {
                    self.count("answer to an earlier process");
                }
            }
        }
        self.act_soon(to);
    }

    /// Changes what the tenants of a node would use, and plans the next change.
    fn offer(&mut self, node: usize) {
        let is_calm = self.now >= FAULTS_END;
        for resource in 0..2 {
            for tenant in 0..TENANTS {
                let drawn = match pick(&mut self.draws, 4) {
                    0 => 1e6,
                    1 => pick(&mut self.draws, 800) as f64,
                    _ => 0.0,
                };
                let calm = if (node, tenant) == (0, 1) { 1e6 } else { 0.0 };
                let offered = if is_calm { calm } else { drawn };
                self.nodes[node].offered[resource][tenant] = offered;
            }
        }
        if !is_calm {
            let wait = ms(200) + time(&mut self.draws, ms(2_500));
            self.plan((self.now + wait).min(FAULTS_END), Event::Offer(node));
        }
    }

    fn restart(&mut self, node: usize) {
        if self.nodes[node].process.is_some() || !self.has(self.configuration(node), node) {
            return;
        }
        self.count("node restarted");
        self.tell(|| format!("{} starts", NAMES[node]));
        let speed = 990_000 + pick(&mut self.draws, 20_001) as u64;
        let origin = Instant::from_secs(1) + time(&mut self.draws, Duration::from_secs(3_600));
        let clock = Clock { started_at: self.now, origin, speed };
        let configuration = self.configuration(node).clone();
        self.nodes[node].start(self.now, clock, &configuration, (self.lends, self.flaw));
        self.nodes[node].paused_until = self.now;
        self.act_soon(node);
        let incarnation = self.nodes[node].incarnation;
        self.plan(self.now, Event::Wake(node, incarnation));
    }

    /// Gives a node the configuration after the change: by a reload, or a restart if totals differ.
    fn change_node(&mut self, node: usize) {
        self.tell(|| format!("{} changes its configuration", NAMES[node]));
        self.nodes[node].is_changed = true;
        let needs_restart = self.change.before.totals != self.change.after.totals;
        self.count(if needs_restart { "total changed" } else { "nodes changed" });
        if needs_restart || pick(&mut self.draws, 2) == 0 {
            self.nodes[node].process = None;
        }
        let Some(process) = &mut self.nodes[node].process else { return self.restart(node) };
        let shown = process.clock.shows(self.now);
        process.rates.set_nodes(shown, self.change.after.nodes.clone());
        self.act_soon(node);
    }

    /// Checks the rates in force of a resource, after one node has set its own.
    fn check_sums(&self, node: usize, resource: ResourceId) -> Result<(), String> {
        let at = resource.index();
        let in_force = |node: &Node| node.process.as_ref().map(|process| process.in_force(at, self.now));
        let totals = self.nodes.iter().map(|node| in_force(node).map_or(0.0, |(total, _)| total));
        let totals: Vec<f64> = totals.collect();
        let (sum, most) = (totals.iter().sum::<f64>(), self.change.most(at));
        if sum > most * (1.0 + 1e-9) {
            return Err(format!("at {:?} the sum of {totals:?} is {sum}, above {most}", self.now));
        }
        let (total, per_s) = in_force(&self.nodes[node]).expect("it runs");
        if per_s.iter().sum::<f64>() > total * (1.0 + 1e-9) {
            return Err(format!("at {:?}: the sum of the tenants' {per_s:?} is above {total}", self.now));
        }
        Ok(())
    }

    /// Checks that the tenant that waits has nearly all of each total.
    fn check_progress(&self) -> Result<(), String> {
        let process = self.nodes[0].process.as_ref().ok_or("the first node does not run")?;
        for (resource, total) in self.configuration(0).totals.iter().enumerate() {
            let (total_in_force, per_s) = process.in_force(resource, END);
            // Units of its own node are lent to the tenant one by one.
            let (has, all) =
                if self.lends { (total_in_force, *total) } else { (per_s[1], total / TENANTS as f64) };
            if has < 0.9 * all {
                return Err(format!("a tenant has {has} of {all} while all others are idle"));
            }
        }
        Ok(())
    }
}
