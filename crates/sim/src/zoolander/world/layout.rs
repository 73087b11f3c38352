//! Changes of the store's layout at the beginning of a phase, and their measured effects.

use sherwood_policy::stores::StoreDecision;

use super::{NODE, STORE, World, Zoolander};
use crate::zoolander::key::nodes;
use crate::zoolander::policy::Use;

impl World {
    /// Begins the day or the night: the store is used as the policy says, or as the manager decides
    /// from the rates of this phase and of the next one.
    pub(super) fn begin_phase(&mut self, phase: usize) {
        self.sample();
        self.family.phase = phase;
        let second = self.now.as_nanos() / 1_000_000_000;
        let Zoolander { policy, manager, decisions, objectives, .. } = &mut self.family;
        let used = match (manager, policy.uses) {
            (Some((manager, times)), _) => {
                let [rate, next] = [phase, 1 - phase].map(|phase| objectives[phase].rate_per_s);
                let StoreDecision { plan, reason, .. } = manager.decide(times, rate, Some(next));
                decisions.push(format!("{second} s: {reason}"));
                Use::planned(&plan)
            }
            (None, Some(uses)) => uses[phase],
            (None, None) => return,
        };
        self.apply_use(used);
    }

    /// Changes the layout of the store, for accesses that begin from now on.
    ///
    /// # Panics
    /// If there are more duplicates than an access may ask, which is a bug.
    fn apply_use(&mut self, used: Use) {
        let (before, since) = std::mem::replace(&mut self.family.in_use, (used, self.now));
        self.family.recorder.used(nodes(before.layout), self.now - since);
        if used.copies != before.copies {
            let machine = &mut self.nodes[usize::from(NODE)].machines[STORE.index()];
            machine.replace_copies(used.copies).expect("plans have at most eight duplicates");
        }
    }

    /// Ends a sample, and tells the manager the level that was measured in it.
    pub(super) fn sample(&mut self) {
        let now = self.now;
        let Zoolander { recorder, in_use, manager, decisions, .. } = &mut self.family;
        let recent = recorder.sample(now, &in_use.0.plan());
        let Some((manager, _)) = manager.as_mut().filter(|_| recent.requests > 0) else { return };
        let level = 1.0 - recent.violated as f64 / recent.requests as f64;
        let effect = manager.handle_measured(level);
        decisions.extend(effect.map(|effect| format!("{} s: {effect}", now.as_nanos() / 1_000_000_000)));
    }
}
