//! The choice of the best replicas, for balancers that compare all of them.

use sherwood_model::ReplicaId;

use super::{Picks, ReplicaLoad};
use crate::draws::below;

/// Pushes the best `want` of the `usable` replicas onto `picks`, each once. `is_better` says if its
/// first replica is to be picked instead of its second; between equal ones a random place decides,
/// so that they are picked evenly.
pub(super) fn choose_best(
    usable: &[ReplicaLoad],
    want: usize,
    entropy: u64,
    picks: &mut Picks,
    is_better: impl Fn(&ReplicaLoad, &ReplicaLoad) -> bool,
) {
    let start = below(entropy, usable.len() as u64) as usize;
    for _ in 0..want.min(usable.len()) {
        let left = from(usable, start).filter(|load| !picks.contains(&load.replica));
        let best = left.reduce(|first, second| if is_better(second, first) { second } else { first });
        picks.extend(best.map(|load| load.replica));
    }
}

/// Returns the replicas from this place on, and then those before it.
pub(super) fn from(usable: &[ReplicaLoad], start: usize) -> impl Iterator<Item = &ReplicaLoad> {
    usable[start..].iter().chain(&usable[..start])
}

/// Returns the replica with the least rank of those that are not among `picks`, the first of equal
/// ones.
pub(super) fn least<'a, R: PartialOrd>(
    replicas: impl Iterator<Item = &'a ReplicaLoad>,
    picks: &Picks,
    rank: impl Fn(&ReplicaLoad) -> R,
) -> Option<ReplicaId> {
    let left = replicas.filter(|load| !picks.contains(&load.replica));
    let ranked = left.map(|load| (rank(load), load.replica));
    let least = ranked.reduce(|first, second| if second.0 < first.0 { second } else { first });
    least.map(|(_, replica)| replica)
}
