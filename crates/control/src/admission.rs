//! The admission lever: chooses β for the backends that have a target share of missed deadlines.

use sherwood_model::{BackendId, BackendPlan, Instant, Percent};

use crate::beta::AdaptiveBeta;
use crate::history::History;
use crate::{AdmissionSeen, BetaDecision};

/// Chooses β, the percentile of latencies that admission takes as its estimate, for each backend
/// with a target share of missed deadlines (`MicroFuge`, section 4.3).
#[derive(Clone, Debug, Default)]
pub struct Admission {
    backends: Vec<WithTarget>,
}

/// A backend with a target share of missed deadlines.
#[derive(Clone, Debug)]
struct WithTarget {
    backend: BackendId,
    target: Percent,
    choice: AdaptiveBeta,
    /// The values of β that decisions saw in force.
    history: History<Percent>,
    /// The reason for the latest decision, in words.
    reason: Option<String>,
}

/// The β chosen for a backend, which may equal the present one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BetaChoice {
    /// The backend.
    pub backend: BackendId,
    /// The target share of missed deadlines.
    pub target: Percent,
    /// The percentile β before the choice.
    pub before: Percent,
    /// The percentile β that was chosen.
    pub beta: Percent,
    /// The reason for the choice, in words.
    pub reason: String,
    /// True if the choice takes effect; false in a dry run.
    pub applied: bool,
}

/// A backend's target, and the latest decision about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionStanding<'a> {
    /// The backend.
    pub backend: BackendId,
    /// The target share of missed deadlines.
    pub target: Percent,
    /// The reason for the latest decision, in words; none before the first.
    pub reason: Option<&'a str>,
}

/// The permission of a lever in one round, given dry runs, freezes and roll-backs of the whole
/// loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// Decide and act.
    Act,
    /// Decide and report, without effect.
    Report,
    /// Keep everything: moves are frozen after a roll-back.
    Frozen,
    /// Restore what was in force before the decision at this time.
    BackTo(Instant),
}

impl Admission {
    /// Returns the lever over these backends, each with its target share of missed deadlines.
    #[must_use]
    pub fn new(targets: impl IntoIterator<Item = (BackendId, Percent)>) -> Self {
        let with_target = |(backend, target)| WithTarget {
            backend,
            target,
            choice: AdaptiveBeta::new(target),
            history: History::default(),
            reason: None,
        };
        Self { backends: targets.into_iter().map(with_target).collect() }
    }

    /// Returns each backend's target and the latest decision about it.
    pub fn standings(&self) -> impl Iterator<Item = AdmissionStanding<'_>> {
        self.backends.iter().map(|WithTarget { backend, target, reason, .. }| AdmissionStanding {
            backend: *backend,
            target: *target,
            reason: reason.as_deref(),
        })
    }

    /// Returns true if no backend has a target.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.backends.is_empty()
    }

    /// Decides about each backend in `seen` without regard to dry runs, freezes and roll-backs, and
    /// returns the plans.
    #[must_use]
    pub fn propose(&mut self, now: Instant, seen: &[AdmissionSeen]) -> Vec<BackendPlan> {
        planned(&self.decide(now, seen, Leave::Act))
    }

    /// Decides about each backend in `seen`, and returns the choices. Backends without a target are
    /// left out.
    pub(crate) fn decide(&mut self, now: Instant, seen: &[AdmissionSeen], leave: Leave) -> Vec<BetaChoice> {
        let choices = self.backends.iter_mut().filter_map(|of| {
            let seen = seen.iter().find(|seen| seen.backend == of.backend)?;
            Some(of.decide(now, seen, leave))
        });
        choices.collect()
    }
}

/// Returns the backends' plans from the choices that take effect. An unchanged β is planned as
/// well: plans are absolute, and a queue recalculates its latency estimate when it gets one.
pub(crate) fn planned(choices: &[BetaChoice]) -> Vec<BackendPlan> {
    let applied = choices.iter().filter(|choice| choice.applied);
    applied
        .map(|choice| BackendPlan { beta: Some(choice.beta), ..BackendPlan::unchanged(choice.backend) })
        .collect()
}

impl BetaChoice {
    /// Returns true if the chosen percentile differs from the one before.
    #[must_use]
    pub fn is_change(&self) -> bool {
        self.beta != self.before
    }
}

impl WithTarget {
    fn decide(&mut self, now: Instant, seen: &AdmissionSeen, leave: Leave) -> BetaChoice {
        let before = seen.beta;
        self.history.note(now, before);
        let decided = self.choice.decide(before, seen.ended);
        let BetaDecision { beta, reason } = match leave {
            Leave::Act | Leave::Report => decided,
            Leave::Frozen => {
                BetaDecision { beta: before, reason: format!("moves are frozen: beta stays {before}") }
            }
            Leave::BackTo(at) => self.back_to(at, before),
        };
        self.reason = Some(reason.clone());
        let applied = leave != Leave::Report;
        let Self { backend, target, .. } = *self;
        BetaChoice { backend, target, before, beta, reason, applied }
    }

    /// Returns the decision to restore the percentile that was in force at `at`, when the
    /// allocation that the guard restores was measured.
    fn back_to(&self, at: Instant, before: Percent) -> BetaDecision {
        let beta = self.history.at(at).copied().unwrap_or(before);
        let reason = if beta == before {
            format!("moves made requests slower, and beta has not changed: it stays {before}")
        } else {
            format!("moves made requests slower: beta goes back from {before} to {beta}")
        };
        BetaDecision { beta, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeadlineCounts;

    fn percent(percent: f64) -> Percent {
        Percent::new("beta", percent).unwrap()
    }

    fn seen(beta: Percent, missed: u64) -> AdmissionSeen {
        let ended = DeadlineCounts { met: 0, missed, rejected: 0 };
        AdmissionSeen { backend: BackendId(2), beta, ended }
    }

    fn lever() -> Admission {
        Admission::new([(BackendId(2), percent(3.0))])
    }

    #[test]
    fn beta_change_is_planned_only_for_the_backend_with_a_target() {
        let mut lever = lever();
        let unknown = AdmissionSeen { backend: BackendId(0), ..seen(Percent::BETA, 500) };
        let changes = lever.decide(Instant::from_secs(5), &[unknown, seen(Percent::BETA, 500)], Leave::Act);
        let beta = percent(94.0);
        assert_eq!(
            planned(&changes),
            [BackendPlan { beta: Some(beta), ..BackendPlan::unchanged(BackendId(2)) }]
        );
        let reason = "100% of 500 deadlines were missed, where 3% are wanted: beta rises from 88% to 94%";
        assert_eq!(changes[0].reason, reason);
        assert_eq!(lever.standings().map(|standing| standing.reason).collect::<Vec<_>>(), [Some(reason)]);
    }

    #[test]
    fn dry_run_reports_a_beta_change_without_planning_it() {
        let changes = lever().decide(Instant::from_secs(5), &[seen(Percent::BETA, 500)], Leave::Report);
        assert_eq!((changes.len(), changes[0].applied, planned(&changes)), (1, false, vec![]));
    }

    #[test]
    fn roll_back_restores_the_beta_of_the_restored_allocation_and_a_freeze_keeps_it() {
        let (mut lever, at) = (lever(), Instant::from_secs);
        let mut beta = Percent::BETA;
        for round in 1..=4 {
            let changes = lever.decide(at(5 * round), &[seen(beta, 500 * round)], Leave::Act);
            beta = changes[0].beta;
        }
        let at_ten = percent(97.0);
        assert!(beta > at_ten);
        // The decision at 15 s chose another, which the good allocation was not measured with.
        let back = lever.decide(at(25), &[seen(beta, 2_500)], Leave::BackTo(at(15)));
        assert_eq!((back[0].before, back[0].beta, back[0].applied), (beta, at_ten, true));
        let frozen = lever.decide(at(30), &[seen(at_ten, 3_000)], Leave::Frozen);
        assert!(!frozen[0].is_change(), "{frozen:?}");
        // A time before all that is remembered means the first.
        let back = lever.decide(at(35), &[seen(at_ten, 3_500)], Leave::BackTo(Instant::ZERO));
        assert_eq!(back[0].beta, Percent::BETA);
    }
}
