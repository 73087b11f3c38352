//! Construction of the set-up's parts.

use std::time::Duration;

use sherwood_cache::{Cache, DeadlineOptions, Options as CacheOptions, Partition, charge};
use sherwood_control::Admission;
use sherwood_model::{DeadlineClasses, Instant, SeededState, TenantId};
use sherwood_path::{BackendOptions, Placement, Rules};
use sherwood_workload::ReadTimes;

use super::{BACKEND, MicroFuge, PARTITION, VALUE_BYTES, World};
use crate::microfuge::clairvoyant::Clairvoyant;
use crate::microfuge::clients::Clients;
use crate::microfuge::key::{KEY_BYTES, holders};
use crate::microfuge::policy::{Caching, Policy};
use crate::microfuge::results::Recorder;
use crate::microfuge::setup::{Setup, SetupError};
use crate::traffic::stream;
use crate::world::{Machine, Node, Servers, fixed_division};

/// Returns the world before its first event.
pub(super) fn world(setup: &Setup) -> Result<World, SetupError> {
    let policy = setup.validate()?;
    let hash = SeededState::new(0);
    let cache = cache(setup, &policy, hash)?;
    let options = BackendOptions {
        placement: Placement::ByKey(holders),
        rules: Rules {
            // Without a cache, nothing that is fetched or written is kept.
            ttl: (policy.caching == Caching::None).then_some(Duration::ZERO),
            ..Rules::default()
        },
        ..BackendOptions::new(policy.dispatch(&setup.knobs)?, setup.knobs.servers.into(), vec![PARTITION])
    };
    let target = options.dispatch.admit.target();
    let admission = Admission::new(target.map(|target| (BACKEND, target)));
    let control = fixed_division(admission, vec![cache.total_bytes()]);
    let machine = Machine::new(options, Instant::ZERO, hash)?;
    let node = Node::new(cache, vec![machine], control, vec![(TenantId(0), BACKEND)]);
    let family = MicroFuge {
        policy,
        clients: Clients::new(setup)?,
        times: ReadTimes { scale: setup.knobs.scale },
        clairvoyant: Clairvoyant::new(setup),
        has_target: target.is_some(),
        recorder: Recorder::new(),
        setup: setup.clone(),
    };
    let servers = Servers::new([(setup.knobs.servers, setup.knobs.slots)].into_iter());
    let end = Instant::ZERO + setup.duration();
    Ok(World::of(family, end, vec![node], servers, stream(setup.seed, ROUTES)))
}

/// Returns a cache with room for a fifth of the records, in one partition.
fn cache(setup: &Setup, policy: &Policy, hash: SeededState) -> Result<Cache, SetupError> {
    let records = setup.knobs.records / 5;
    let total_bytes = records * charge(KEY_BYTES, VALUE_BYTES as usize) as u64;
    let options = CacheOptions {
        total_bytes,
        shards: 1,
        eviction: setup.knobs.eviction.unwrap_or(policy.eviction),
        ..CacheOptions::sized(total_bytes, 1)
    };
    let deadlines = match policy.caching {
        Caching::None | Caching::Lru => DeadlineOptions::ONE,
        Caching::Deadlines(cost) => DeadlineOptions {
            classes: DeadlineClasses::of_equal_width(setup.knobs.classes, setup.knobs.classes_upto)?,
            step: setup.knobs.epsilon,
            cost,
        },
    };
    let partition = Partition { deadlines, ..Partition::new(TenantId(0), BACKEND, total_bytes) };
    Ok(Cache::new(options, &[partition], hash)?)
}

/// Number of the random stream with which the dispatcher chooses replicas.
const ROUTES: u64 = 1;
