//! Work that starts at three nodes, whose queues have the rates that are set.

use sherwood_model::SplitMix64;

use super::*;
use crate::{TenantQueueOptions, TenantQueues};

const NAMES: [&str; 3] = ["a", "b", "c"];
const TOTAL: f64 = 3_000.0;

struct Node {
    rates: PeerRates,
    queues: TenantQueues<()>,
    /// Tenants that have work at any time.
    busy: Vec<TenantId>,
}

/// Three nodes on a network that delivers every message after a millisecond.
struct Cluster {
    now: Instant,
    nodes: Vec<Node>,
    /// Receiver, sender and message.
    messages: Vec<(usize, usize, RateAction)>,
}

impl Cluster {
    /// Starts nodes with two tenants.
    fn start(lends: bool) -> Self {
        let node = |name: &&str| {
            let all = nodes(&NAMES.map(|name| (name, 1.0)));
            let options = PeerRateOptions { lends, ..options(name, all, 2) };
            let queues = TenantQueueOptions { tenants: 2, waiting_max: None, burst_units: 100, lends };
            Node {
                rates: PeerRates::new(at(1_000), options),
                queues: TenantQueues::new(queues),
                busy: vec![],
            }
        };
        Self { now: at(1_000), nodes: NAMES.iter().map(node).collect(), messages: Vec::new() }
    }

    /// Runs for so many milliseconds; returns the units that every node has started.
    fn run(&mut self, millis: u64) -> [usize; 3] {
        let mut started = [0; 3];
        for _ in 0..millis {
            self.now += ms(1);
            for (to, from, message) in std::mem::take(&mut self.messages) {
                match message {
                    RateAction::Ask(_, ask) => self.nodes[to].rates.handle_ask(self.now, NAMES[from], &ask),
                    RateAction::Grant(_, grant) => {
                        self.nodes[to].rates.handle_grant(self.now, NAMES[from], &grant);
                    }
                    RateAction::SetRates(..) => unreachable!("no message"),
                }
            }
            for (node, started) in started.iter_mut().enumerate() {
                *started += self.step(node);
            }
        }
        started
    }

    fn step(&mut self, index: usize) -> usize {
        let (now, Node { rates, queues, busy }) = (self.now, &mut self.nodes[index]);
        if rates.next_timeout() <= now {
            let uses = [0, 1].map(|tenant| queues.used(TenantId(tenant)));
            rates.handle_use(now, READS, &uses);
            rates.handle_timeout(now);
        }
        while let Some(action) = rates.poll_action() {
            let to = match &action {
                RateAction::SetRates(_, in_force) => {
                    queues.set_rates_in_force(now, in_force);
                    continue;
                }
                RateAction::Ask(to, _) | RateAction::Grant(to, _) => to,
            };
            let to = NAMES.iter().position(|name| **name == **to).expect("a known node");
            self.messages.push((to, index, action));
        }
        let mut started = 0;
        loop {
            for tenant in busy.iter() {
                while queues.used(*tenant).waiting < 2 {
                    queues.enter(now, *tenant, (), 1.0, None).expect("no limit");
                }
            }
            match queues.start_next(now) {
                Some(_) => started += 1,
                None => return started,
            }
        }
    }
}

#[test]
fn tenant_of_one_node_gets_nearly_all_units_that_others_leave() {
    for (lends, all) in [(true, TOTAL), (false, TOTAL / 2.0)] {
        let mut cluster = Cluster::start(lends);
        cluster.nodes[0].busy = vec![T0];
        cluster.run(1_500);
        let [started, ..] = cluster.run(10_000);
        let ratio = started as f64 / (all * 10.0);
        assert!((0.9..=1.02).contains(&ratio), "{started} units in 10 s, {ratio} of all (lending: {lends})");
    }
}

#[test]
fn busy_nodes_use_the_total_and_no_more() {
    let mut cluster = Cluster::start(true);
    for node in &mut cluster.nodes {
        node.busy = vec![T0, TenantId(1)];
    }
    cluster.run(1_500);
    let ratio = cluster.run(10_000).iter().sum::<usize>() as f64 / (TOTAL * 10.0);
    assert!((0.97..=1.02).contains(&ratio), "{ratio} of the total");
}

#[test]
fn sum_over_ten_seconds_is_within_the_total_while_the_load_moves_between_nodes() {
    for seed in 0..6 {
        let mut draws = SplitMix64::new(seed);
        let mut cluster = Cluster::start(seed % 2 == 0);
        let mut each_100_ms = Vec::new();
        for _ in 0..40 {
            for node in &mut cluster.nodes {
                let busy = draws.next_u64();
                node.busy = (0..2).filter(|bit| busy >> bit & 1 == 1).map(TenantId).collect();
            }
            let periods = 1 + draws.next_u64() % 12;
            each_100_ms.extend((0..periods).map(|_| cluster.run(100).iter().sum::<usize>()));
        }
        for (first, tens) in each_100_ms.windows(100).enumerate() {
            let ratio = tens.iter().sum::<usize>() as f64 / (TOTAL * 10.0);
            assert!(ratio <= 1.02, "seed {seed}: {ratio} of the total in 10 s from {first}00 ms on");
        }
    }
}

#[test]
fn tenant_that_becomes_busy_has_its_own_units_back_after_one_loan() {
    for lends in [true, false] {
        let mut cluster = Cluster::start(lends);
        cluster.nodes[0].busy = vec![T0];
        cluster.run(3_000);
        let own = TOTAL / 3.0 / 2.0;
        let rate =
            |cluster: &Cluster| cluster.nodes[1].rates.rates(cluster.now, READS).at(cluster.now).per_s[0];
        assert!(rate(&cluster) < 0.1 * own, "{} are not lent", rate(&cluster));
        assert!(rate(&cluster) >= own / 16.0, "{} are left to start with", rate(&cluster));
        cluster.nodes[1].busy = vec![T0];
        cluster.run(620);
        assert!(rate(&cluster) >= own, "{} of {own} after 620 ms", rate(&cluster));
        let [_, started, _] = cluster.run(1_000);
        assert!(started as f64 >= 0.98 * own, "{started} of {own} in the second after that");
    }
}
