//! A further set-up (kind of simulation), with users who read pages. Calls for pages start queries
//! at a second tier, and the tenants have rates.

use rand_core::Rng as _;
use sherwood_cache::{Cache, DeadlineCost, DeadlineOptions, Options as CacheOptions, Partition};
use sherwood_control::{Admission, AdmissionSeen, CacheSeen, ControlLoop, Levels, Pin, Seen};
use sherwood_dispatch as dispatch;
use sherwood_model::{DeadlineClasses, Demand, FinishedRequest, Legs, PartitionId, Percent};
use sherwood_model::{ReplicaId, ResourceKind, SeededState, TenantId};
use sherwood_path::{BackendOptions, FetchKey, Query, Staleness, WriteOptions};
use sherwood_policy::tenants::{
    Share, TenantController, TenantOptions, TenantResource, TenantTerms, by_name,
};
use sherwood_policy::{Controller, Options, TwoLevels};

use super::*;
use crate::key::Key;
use crate::traffic::stream;

/// The tiers, each with two replicas that hold every object, and the nodes in front of them.
const PAGES: BackendId = BackendId(0);
const QUERIES: BackendId = BackendId(1);
const FRONT: u16 = 0;
const BACK: u16 = 1;
const TENANTS: [TenantId; 2] = [TenantId(0), TenantId(1)];
const BYTES: [u32; 2] = [1_000, 300];
const RATES: [f64; 2] = [120.0, 200_000.0];
const CLIENT_BYTES: f64 = 100.0;
const MS: Duration = Duration::from_millis(1);
/// Time at which users stop, before the end of the run.
const STOP: Instant = Instant::from_secs(20);

struct Tiers {
    draws: Rng,
    /// Numbers of ended requests: of first stages, of second stages, and for pages.
    ended: [u64; 3],
    failed: u64,
    /// Calls for pages that were served.
    pages: u64,
}

/// A request for `keys` of a tier.
#[derive(Clone, Copy)]
struct Sender {
    tenant: TenantId,
    tier: BackendId,
    keys: u32,
    deadline: Instant,
    stage: Stage,
}

#[derive(Clone, Copy)]
enum Stage {
    /// The first request of a user, who reads a page.
    First(u16),
    /// The second request of the user, who reads three pages and writes one.
    Second(u16),
    /// The queries that a call for pages, the job with this number, waits for.
    Page(u32),
}

fn partition(tenant: TenantId, tier: BackendId) -> PartitionId {
    PartitionId(2 * tenant.0 + tier.0)
}

impl Family for Tiers {
    type Key = Key;
    type Client = Sender;
    /// A visit of the user with this number, or a round of the control loop.
    type Event = Option<u16>;

    fn happen(world: &mut Simulation<Self>, event: Option<u16>) {
        match event {
            _ if world.now >= STOP => {}
            Some(user) => world.visit(user, 1, Stage::First(user)),
            None => world.control(),
        }
    }

    fn ask(&mut self, _: Instant, sender: &mut Sender) -> Ask<Key> {
        let Sender { tenant, tier: backend, keys, deadline, stage } = *sender;
        let mut key = |_| Key::new((self.draws.next_u64() % 100).pow(2) % 997);
        let (keys, partition): (Vec<_>, _) = ((0..keys).map(&mut key).collect(), partition(tenant, backend));
        let options = WriteOptions { tenant, ..WriteOptions::default() };
        let write = AskedWrite { backend, partition, key: keys[0], bytes: BYTES[0], options };
        let writes = if matches!(stage, Stage::Second(_)) { vec![write] } else { Vec::new() };
        let demand = Demand { tenant, deadline: Some(deadline), ..Demand::default() };
        let (timeout, staleness) = (1_000 * MS, Staleness::default());
        Ask {
            queries: vec![Query { backend, partition, keys, demand, timeout, staleness, shared: None }],
            writes,
        }
    }

    fn tenant(sender: &Sender) -> TenantId {
        sender.tenant
    }

    fn client_bytes(&self, _: &Sender) -> f64 {
        CLIENT_BYTES
    }

    fn finish(world: &mut Simulation<Self>, live: Live<Key, Sender>, _: FinishedRequest) {
        let answers = live.request.iter().flat_map(|request| request.answers());
        world.family.failed += answers.filter(|(.., answer)| answer.error.is_some()).count() as u64;
        match live.client.stage {
            Stage::First(user) => {
                world.family.ended[0] += 1;
                world.visit(user, 3, Stage::Second(user));
            }
            Stage::Second(user) => {
                world.family.ended[1] += 1;
                world.schedule(world.now + MS, Some(user));
            }
            Stage::Page(job) => {
                world.family.ended[2] += 1;
                world.done(PAGES, job);
            }
        }
    }

    fn serve(world: &mut Simulation<Self>, backend: BackendId, number: u32) {
        match world.servers.jobs.get(number).map(|job| &job.work) {
            Some(Work::Call { keys, .. }) if backend == PAGES => {
                let tenant = TenantId(keys[0].partition.0 / 2);
                let (keys, deadline) = (2 * keys.len() as u32, world.now + 10 * MS);
                let sender = Sender { tenant, tier: QUERIES, keys, deadline, stage: Stage::Page(number) };
                let request = world.begin(BACK, world.now, sender);
                world.family.pages += 1;
                world.arrive(request);
            }
            _ => world.serve(backend, number),
        }
    }

    fn service_time(&mut self, _: Instant, _: BackendId, job: &Job<Key>) -> Duration {
        MS * job.work.keys()
    }

    fn read(&mut self, tier: BackendId, _: ReplicaId, _: Instant, _: &FetchKey<Key>) -> u32 {
        BYTES[tier.index()]
    }
}

impl Simulation<Tiers> {
    fn visit(&mut self, user: u16, keys: u32, stage: Stage) {
        let (tenant, deadline) = (TENANTS[usize::from(user % 2)], self.now + 40 * MS);
        let request = self.begin(FRONT, self.now, Sender { tenant, tier: PAGES, keys, deadline, stage });
        self.arrive(request);
    }

    fn control(&mut self) {
        let node = &self.nodes[0];
        let admissions = vec![AdmissionSeen::of(PAGES, &node.machines[0].stats(), (100, 900))];
        let cache = CacheSeen { admissions, ..node.cache_seen(self.now) };
        let seen = Seen { cache: Some(cache), tenants: Some(node.tenants_seen(true)), ..Seen::default() };
        let acts = self.decide(0, seen);
        self.carry_out(0, acts);
        self.schedule(self.now + 1_000 * MS, None);
    }
}

fn ten_percent() -> Percent {
    Percent::new("target", 10.0).expect("in range")
}

fn node(number: u64) -> Node<Key> {
    let (tiers, hash) = ([PAGES, QUERIES], SeededState::new(number));
    let owners: Vec<_> = TENANTS.iter().flat_map(|tenant| tiers.map(|tier| (*tenant, tier))).collect();
    let classes = DeadlineClasses::of_equal_width(4, 40 * MS).expect("they differ");
    let deadlines = DeadlineOptions { classes, step: 0.01, cost: DeadlineCost::Measured };
    let one = |&(tenant, tier)| Partition { deadlines, ..Partition::new(tenant, tier, 16_384) };
    let partitions: Vec<_> = owners.iter().map(one).collect();
    let options = CacheOptions { ghost_rate: 1.0, ..CacheOptions::sized(65_536, 1) };
    let machine = |tier| {
        let burst_units = dispatch::TenantOptions::BURST_UNITS;
        let over = dispatch::OverRate::Wait;
        let by_deadline = dispatch::AdmitChoice::Deadline { target: Some(ten_percent()) };
        let options = dispatch::Options {
            in_flight_calls_max: 2,
            queue: dispatch::QueueChoice::Edf { alpha: Percent::ALPHA },
            balance: dispatch::BalanceChoice::AllTickets,
            admit: if tier == PAGES { by_deadline } else { dispatch::AdmitChoice::Open },
            timeout: 1_000 * MS,
            tenants: Some(dispatch::TenantOptions { tenants: 2, burst_units, lends: true, over }),
            ..dispatch::Options::default()
        };
        let own = TENANTS.map(|tenant| partition(tenant, tier)).to_vec();
        Machine::new(BackendOptions::new(options, 2, own), Instant::ZERO, hash).expect("valid")
    };
    let cache = Cache::new(options, &partitions, hash).expect("valid");
    Node::new(cache, tiers.map(machine).into(), control_loop(), owners)
}

fn control_loop() -> ControlLoop {
    let named =
        |(name, kind, total_per_s): (&str, _, _)| TenantResource { name: name.into(), kind, total_per_s };
    let reads = ("reads", ResourceKind::Reads(PAGES), RATES[0]);
    let resources = [reads, ("network", ResourceKind::Network, RATES[1])].map(named).to_vec();
    let terms = |tenant: TenantId| {
        let base = Some(Share { bytes: 32_768, rates: RATES.map(|rate| rate / 2.0).to_vec() });
        TenantTerms { name: tenant.0.to_string(), weight: 1.0, base, min: Share::default() }
    };
    let options = TenantOptions { chunk_bytes: 512, conserving: true };
    let policy = by_name("hare", options).expect("known");
    let (control, terms) = (Default::default(), TENANTS.map(terms).to_vec());
    let between = TenantController::new(policy, control, resources, 65_536, terms).expect("valid");
    let options = Options::default();
    let within = |tenant| {
        let policy = sherwood_policy::by_name("static", &options).expect("known");
        let names = ["pages", "queries"].map(str::to_owned).to_vec();
        let own = [PAGES, QUERIES].map(|tier| partition(tenant, tier)).to_vec();
        (Controller::new(policy, &options, names, vec![16_384; 2]), own)
    };
    let levels = TwoLevels::new(between, TENANTS.map(within).into()).expect("valid");
    let (levels, admission) = (Levels::Two(Box::new(levels)), Admission::new([(PAGES, ten_percent())]));
    ControlLoop::new(levels, admission, options, vec![Pin::default(); 4], Instant::ZERO)
}

#[test]
fn no_request_is_lost_with_tiers_stages_deadlines_and_rate_limits_combined() {
    let family = Tiers { draws: stream(7, 1), ended: [0; 3], failed: 0, pages: 0 };
    let servers = Servers::new([(2, 2), (2, 2)].into_iter());
    let end = STOP + 5_000 * MS;
    let mut world = Simulation::of(family, end, vec![node(1), node(2)], servers, stream(7, 2));
    let options = dispatch::DebtOptions { waiting_max: Some((200, 2)), ..Default::default() };
    let network = Network::new(dispatch::TenantGate::new(2, true), Legs::Both, options);
    world.nodes[0].network = Some(network);
    let plan = world.nodes[0].control.levels().plan();
    world.apply(0, plan);
    (0..16).for_each(|user| world.schedule(Instant::ZERO, Some(user)));
    world.schedule(Instant::ZERO + 1_000 * MS, None);
    while world.now < end {
        world.run(world.now + 500 * MS).expect("the books balance");
    }
    let Tiers { ended: [first, second, inner], failed, pages, .. } = world.family;
    assert_eq!(world.live.iter().count() + world.servers.jobs.iter().count(), 0, "all have ended");
    assert_eq!((first, inner), (second, pages));
    // Admission rejects about a quarter of the keys.
    assert!(first > 500 && inner > 500 && failed * 4 < world.queries, "{first} {inner} {failed}");
    let front = &world.nodes[0];
    let gate = &front.network.as_ref().expect("it was set").gate;
    let mut client_bytes = 0.0;
    for tenant in TENANTS {
        let (counts, read_units) = front.asked(partition(tenant, PAGES));
        assert!(counts.hits > 0 && counts.misses > 0 && read_units > 0.0, "{counts:?}");
        let used = gate.used(tenant);
        client_bytes += used.own_units + used.lent_units;
        client_bytes -= (counts.fetched_bytes + counts.written_bytes) as f64;
    }
    assert!((client_bytes - CLIENT_BYTES * (first + second) as f64).abs() < 1.0, "{client_bytes}");
    assert!(front.control.decisions() >= 18 && front.machines[0].stats().beta > Percent::BETA);
}
