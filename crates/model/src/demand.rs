//! The urgency of a query, carried from the query to the call that answers it.

use std::num::NonZeroU64;
use std::time::Duration;

use thiserror::Error;

use crate::{DeadlineClass, Instant, TenantId};

/// Largest deadline: the longest time that a caller may say it waits for an answer.
pub const DEADLINE_MAX: Duration = Duration::from_secs(24 * 3600);

/// The tenant, the urgency and the kind of a query, as queues and replicas take them into account.
///
/// The default is a read of the default tenant without a deadline, which counts in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The tenant on whose behalf the query is made.
    pub tenant: TenantId,
    /// The class that the deadline belongs to.
    pub class: DeadlineClass,
    /// The time by which the caller wants its answer; none if any time will do. It decides order
    /// and admission. The backend's timeout bounds the wait whatever the deadline is.
    pub deadline: Option<Instant>,
    /// The kind of access.
    pub kind: DemandKind,
    /// True if the caller can do without the answer.
    pub best_effort: bool,
    /// Sequence number of the latest write that the answer must reflect; 0 if any answer will do. A
    /// replica that has not applied that write is not asked.
    pub after: u64,
    /// The request that the query belongs to; none if it is not known. Copies of one request are
    /// sent to different servers where possible.
    pub request: Option<RequestId>,
}

/// The id of a request, shared by all copies of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(NonZeroU64);

impl RequestId {
    /// Makes an id of a number, such as the last 8 bytes of a trace id; none for 0, which W3C Trace
    /// Context does not allow as an id.
    #[must_use]
    pub fn new(number: u64) -> Option<Self> {
        NonZeroU64::new(number).map(Self)
    }
}

/// The kind of access that a [`Demand`] asks a backend for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DemandKind {
    /// A read, which may be repeated and duplicated.
    #[default]
    Read,
    /// An access that changes the backend's data.
    Write,
}

/// The error of a deadline that is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[error(
    "a deadline of {ms} ms; it must be above 0 and at most 86400000 ms (24 h), the time from now to the answer"
)]
pub struct DeadlineError {
    /// The deadline given, in milliseconds.
    pub ms: f64,
}

/// Returns the time that a deadline of `ms` milliseconds leaves for the answer.
///
/// ```
/// use sherwood_model::deadline_within;
/// use std::time::Duration;
/// assert_eq!(deadline_within(2.5), Ok(Duration::from_micros(2_500)));
/// for ms in [0.0, -1.0, f64::NAN, 86_400_001.0] {
///     let error = deadline_within(ms).unwrap_err().to_string();
///     assert!(error.contains("above 0 and at most 86400000 ms"));
/// }
/// ```
///
/// # Errors
/// If `ms` is 0, negative, not a number or over [`DEADLINE_MAX`].
pub fn deadline_within(ms: f64) -> Result<Duration, DeadlineError> {
    if !(ms > 0.0 && ms <= DEADLINE_MAX.as_millis() as f64) {
        return Err(DeadlineError { ms });
    }
    // A deadline below a nanosecond still allows some time.
    Ok(Duration::from_secs_f64(ms / 1e3).max(Duration::from_nanos(1)))
}

impl Demand {
    /// Returns true if an answer at `at` is late for a caller that began to wait at `started`. A
    /// deadline that was over by then has no answer in time.
    #[must_use]
    pub fn is_late(&self, started: Instant, at: Instant) -> bool {
        self.deadline.is_some_and(|deadline| at > deadline || deadline <= started)
    }

    /// Returns the class of the deadline; none without a deadline.
    #[must_use]
    pub fn deadline_class(&self) -> Option<DeadlineClass> {
        self.deadline.map(|_| self.class)
    }

    /// Takes in the demand of one more waiter for the same answer. The earlier deadline counts and
    /// brings its class, the later write counts, and the result is best effort only if both are.
    /// The request stays that of the first waiter.
    pub fn join(&mut self, other: &Self) {
        if let Some(theirs) = other.deadline
            && self.deadline.is_none_or(|ours| theirs < ours)
        {
            (self.deadline, self.class) = (Some(theirs), other.class);
        }
        self.best_effort &= other.best_effort;
        self.after = self.after.max(other.after);
    }
}

impl Default for Demand {
    fn default() -> Self {
        Self {
            tenant: TenantId(0),
            class: DeadlineClass::default(),
            deadline: None,
            kind: DemandKind::Read,
            best_effort: false,
            after: 0,
            request: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(ms: u64, class: u8) -> Demand {
        let deadline = Some(Instant::from_millis(ms));
        Demand { deadline, class: DeadlineClass(class), ..Demand::default() }
    }

    #[test]
    fn joined_demand_has_the_earlier_deadline_and_its_class() {
        let mut demand = Demand::default();
        for (joining, expected) in [
            (due(30, 1), due(30, 1)),
            (due(50, 0), due(30, 1)),
            (Demand::default(), due(30, 1)),
            (due(20, 2), due(20, 2)),
        ] {
            demand.join(&joining);
            assert_eq!(demand, expected);
        }
    }

    #[test]
    fn answer_after_the_deadline_is_late_and_every_answer_to_an_expired_one() {
        let started = Instant::from_millis(10);
        let is_late = |demand: Demand, ms| demand.is_late(started, Instant::from_millis(ms));
        assert_eq!([12, 13].map(|ms| is_late(due(12, 0), ms)), [false, true]);
        assert!(is_late(due(10, 0), 10));
        assert!(!is_late(Demand::default(), u64::MAX));
    }

    #[test]
    fn joined_demand_is_best_effort_only_if_all_are() {
        let best_effort = Demand { best_effort: true, ..Demand::default() };
        let mut demand = best_effort;
        demand.join(&best_effort);
        assert!(demand.best_effort);
        demand.join(&Demand::default());
        demand.join(&best_effort);
        assert!(!demand.best_effort);
    }
    #[test]
    fn joined_demand_requires_the_later_of_both_writes() {
        let mut demand = Demand { after: 7, ..Demand::default() };
        demand.join(&Demand { after: 5, ..Demand::default() });
        assert_eq!(demand.after, 7);
        demand.join(&Demand { after: 9, request: RequestId::new(1), ..Demand::default() });
        assert_eq!((demand.after, demand.request), (9, None));
        assert_eq!(RequestId::new(0), None);
    }
}
