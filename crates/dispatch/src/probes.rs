//! Choice of the keys that a replica which is down is probed with.
//!
//! An engine can be up and unable to read, so a probe reads. A single key is not enough: a service
//! may fail for it, or a table may be slow for it, while all others work. So probes alternate
//! between a key that the replica has answered (another replica, if this one has not answered any
//! yet) and one that got no answer lately from any replica, such as keys that no replica was asked
//! for while all were down. No replica stays down because of one key; a replica that answers some
//! keys and fails for most comes back and goes down again.

use std::collections::VecDeque;

use sherwood_model::ReplicaId;

/// Number of keys of each kind (answered by one replica, unanswered) that are remembered.
const KEYS_MAX: usize = 4;

/// The keys that the replicas of one backend may be probed with, to see if they are up again; four
/// for each replica, and four more.
#[derive(Clone, Debug)]
pub(crate) struct Probes<K> {
    replicas: Vec<Probed<K>>,
    /// Latest keys without an answer from any replica.
    failed: Recent<K>,
}

/// Probing state of one replica.
#[derive(Clone, Debug)]
struct Probed<K> {
    /// Latest keys that the replica has answered.
    answered: Recent<K>,
    /// Number of probes since the latest answer of the replica.
    turn: usize,
}

impl<K: Clone + Eq> Probes<K> {
    /// Creates the state of `replicas` replicas, without keys.
    pub(crate) fn new(replicas: usize) -> Self {
        let nothing = || Probed { answered: Recent::new(), turn: 0 };
        Self { replicas: (0..replicas).map(|_| nothing()).collect(), failed: Recent::new() }
    }

    /// Records that `replica` has answered `key`.
    pub(crate) fn note_answered(&mut self, replica: ReplicaId, key: &K) {
        let Probed { answered, turn } = &mut self.replicas[replica.index()];
        answered.note(key);
        *turn = 0;
    }

    /// Records that `key` got no answer from any replica.
    pub(crate) fn note_failed(&mut self, key: &K) {
        self.failed.note(key);
    }

    /// Returns the key of the next probe of a replica; none if no key is known.
    pub(crate) fn next_key(&mut self, replica: ReplicaId) -> Option<K> {
        let turn = &mut self.replicas[replica.index()].turn;
        let (round, is_the_failed_ones) = (*turn / 2, *turn % 2 == 1);
        *turn = turn.wrapping_add(1);
        let (answered, failed) = (self.answered(replica), &self.failed);
        let (first, second) = if is_the_failed_ones { (failed, answered) } else { (answered, failed) };
        first.at(round).or_else(|| second.at(round)).cloned()
    }

    /// Returns the keys that a replica has answered, or else those of another one that has answered
    /// any.
    fn answered(&self, replica: ReplicaId) -> &Recent<K> {
        let own = &self.replicas[replica.index()].answered;
        let others =
            || self.replicas.iter().map(|probed| &probed.answered).find(|answered| !answered.0.is_empty());
        if own.0.is_empty() { others().unwrap_or(own) } else { own }
    }
}

/// The latest keys, each once, the newest at the end.
#[derive(Clone, Debug)]
struct Recent<K>(VecDeque<K>);

impl<K: Clone + Eq> Recent<K> {
    fn new() -> Self {
        Self(VecDeque::new())
    }

    fn note(&mut self, key: &K) {
        if let Some(at) = self.0.iter().position(|known| known == key) {
            self.0.remove(at);
        } else if self.0.len() == KEYS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(key.clone());
    }

    /// Returns the key for probe number `round`: the newest key for 0, then the ones before it, and
    /// then the newest again.
    fn at(&self, round: usize) -> Option<&K> {
        let back = round.checked_rem(self.0.len())?;
        self.0.get(self.0.len() - 1 - back)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ReplicaId = ReplicaId(0);
    const OTHER: ReplicaId = ReplicaId(1);

    fn asked(
        probes: &mut Probes<&'static str>,
        replica: ReplicaId,
        count: usize,
    ) -> Vec<Option<&'static str>> {
        (0..count).map(|_| probes.next_key(replica)).collect()
    }

    fn keys(names: &[&'static str]) -> Vec<Option<&'static str>> {
        names.iter().copied().map(Some).collect()
    }

    #[test]
    fn probes_alternate_between_answered_and_failed_keys() {
        let mut probes = Probes::new(2);
        assert_eq!(probes.next_key(ONE), None);
        probes.note_failed(&"bad");
        assert_eq!(asked(&mut probes, ONE, 2), keys(&["bad", "bad"]));
        ["a", "b"].iter().for_each(|key| probes.note_answered(ONE, key));
        probes.note_failed(&"worse");
        assert_eq!(asked(&mut probes, ONE, 6), keys(&["b", "worse", "a", "bad", "b", "worse"]));
    }

    #[test]
    fn replica_without_answers_is_probed_with_keys_of_another() {
        let mut probes = Probes::new(2);
        probes.note_failed(&"bad");
        ["a", "b"].iter().for_each(|key| probes.note_answered(OTHER, key));
        assert_eq!(asked(&mut probes, ONE, 4), keys(&["b", "bad", "a", "bad"]));
        probes.note_answered(ONE, &"c");
        assert_eq!(asked(&mut probes, ONE, 2), keys(&["c", "bad"]));
    }

    #[test]
    fn few_keys_to_probe_a_replica_with_are_kept_each_once() {
        let mut probes = Probes::new(1);
        for key in ["a", "b", "a", "c", "d", "e", "e"] {
            probes.note_failed(&key);
            probes.note_answered(ONE, &key);
        }
        assert_eq!(asked(&mut probes, ONE, 10), keys(&["e", "e", "d", "d", "c", "c", "a", "a", "e", "e"]));
    }
}
