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
        picks.extend(best(from(usable, start), picks, &is_better));
    }
}

/// Returns the replicas from this place on, and then those before it.
pub(super) fn from(usable: &[ReplicaLoad], start: usize) -> impl Iterator<Item = &ReplicaLoad> {
    usable[start..].iter().chain(&usable[..start])
}

/// Returns the best of the replicas that are not among `picks`, the first of equal ones.
pub(super) fn best<'a>(
    replicas: impl Iterator<Item = &'a ReplicaLoad>,
    picks: &Picks,
    is_better: impl Fn(&ReplicaLoad, &ReplicaLoad) -> bool,
) -> Option<ReplicaId> {
    let left = replicas.filter(|load| !picks.contains(&load.replica));
    let best = left.reduce(|first, second| if is_better(second, first) { second } else { first });
    best.map(|load| load.replica)
}
