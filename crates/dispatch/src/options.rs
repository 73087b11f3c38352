//! Options of a backend's dispatcher: bounds, timeouts, and treatment of failing replicas.

use std::time::Duration;

use thiserror::Error;

use crate::rules::ATTEMPTS_MAX;
use crate::{
    AdmitChoice, BalanceChoice, CancelRule, CopiesChoice, ExtraOrder, QueueChoice, QueueOptions, RampOptions,
};
use sherwood_model::Percent;

/// Bounds and times of one backend's [`Dispatch`](crate::Dispatch).
///
/// Memory: at most `waiters_max` waiters and as many keys are held, in at most
/// `replicas × (in_flight_calls_max + queued_calls_max)` calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Largest number of keys in one call, at least 1. More keys are split into several calls.
    pub batch_keys_max: u32,
    /// Calls in flight to one replica, at least 1. The default is near the fifteen connections per
    /// backend of RobinHood's example configuration.
    pub in_flight_calls_max: u32,
    /// Calls queued for one replica beyond `in_flight_calls_max`; with 0 they are refused instead.
    pub queued_calls_max: u32,
    /// Upper bound of waiters, at least 1: those of queued and in-flight keys together.
    pub waiters_max: u32,
    /// Longest time from the first request of a key to the delivery of its result, above 0.
    pub timeout: Duration,
    /// The order in which queues start calls.
    pub queue: QueueChoice,
    /// The rule by which replicas are chosen for attempts.
    pub balance: BalanceChoice,
    /// The rule that admits or refuses a fetch.
    pub admit: AdmitChoice,
    /// The percentile of a replica's latencies that estimates take as the time of a call (β), for
    /// rules that use estimates. [`Dispatch::set_beta`](crate::Dispatch::set_beta) changes it.
    pub beta: Percent,
    /// The rule for the number of attempts (calls) that a fetch makes besides retries.
    pub copies: CopiesChoice,
    /// Place of those copies in the queues.
    pub extra: ExtraOrder,
    /// Treatment of attempts that are left when all keys of a fetch have their answers.
    pub cancel: CancelRule,
    /// True if a replica may have lost a key that others have. Its answer that it has none then
    /// counts only when no other replica is asked for the key any more.
    pub misses_wait: bool,
    /// Cores of each server, if the backend is a tier whose copies a replicator chooses; none
    /// measures nothing.
    pub cores: Option<u32>,
    /// Bounds of retries, and of extra attempts as a whole.
    pub retry: RetryOptions,
    /// Conditions under which a replica is down, and its probes.
    pub probe: ProbeOptions,
    /// The ramp, which limits the misses of a cold cache to what the backend can serve; none admits
    /// all of them at once.
    pub ramp: Option<RampOptions>,
    /// The tenants, if each reads by a rate of its own; none starts every fetch at once.
    pub tenants: Option<TenantOptions>,
}

/// The tenants of a backend, each of which reads and writes by a rate of its own.
///
/// A fetch takes a unit for each key from its tenant's rate before a replica is chosen. Retries,
/// copies and units that are known only with the answer are charged as a debt, which the tenant's
/// next fetch waits for. Keys that join a fetch in flight take nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantOptions {
    /// Number of tenants, whose ids are below it; at least 1. A demand of another one panics.
    pub tenants: u16,
    /// Units of a tenant that were not used and may be used later; see
    /// [`TenantQueueOptions::burst_units`](crate::TenantQueueOptions::burst_units). With
    /// [`BURST_UNITS`](Self::BURST_UNITS), a rate of 100 a second is exceeded by at most 4% in a
    /// second.
    pub burst_units: u32,
    /// True if unused units are lent to tenants that wait.
    pub lends: bool,
    /// The treatment of work beyond its tenant's rate.
    pub over: OverRate,
}

impl TenantOptions {
    /// The usual [`burst_units`](Self::burst_units).
    pub const BURST_UNITS: u32 = 4;
}

/// The treatment of work beyond the rate of its tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverRate {
    /// The work waits, up to its deadline and the backend's timeout. If the rate allows no start by
    /// then, it is refused at once.
    #[default]
    Wait,
    /// The work is refused.
    Refuse,
}

/// Bounds of extra attempts: retries, and copies of calls.
///
/// `per_call_max` limits the retries of a call. A budget limits all extra attempts together: each
/// first attempt adds `ratio` of a token to the budget, which starts full with `burst` tokens, its
/// maximum, and each extra attempt takes one token. After `n` calls there were at most
/// `burst + ratio × n` extra attempts, however many replicas fail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryOptions {
    /// Retries of one call, each at another replica than the one that just failed, or after a wait
    /// if the backend throttled it; 0 for none.
    pub per_call_max: u32,
    /// Extra attempts per call in the long run, 0 to 1, kept to a thousandth.
    pub ratio: f64,
    /// Extra attempts that may occur at once, at most 1,000,000.
    pub burst: u32,
}

/// Conditions under which a replica counts as down, and the times of its probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeOptions {
    /// Failures in a row after which a replica is down, at least 1.
    pub failures_max: u32,
    /// Time from going down to the first probe, above 0. Each failed probe doubles it. Every wait
    /// is extended by a random part of up to a quarter, so that probes from many nodes do not
    /// coincide.
    pub interval_min: Duration,
    /// Longest time between two probes, at least `interval_min`.
    pub interval_max: Duration,
}

/// The error of invalid options, which come from the configuration.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum OptionsError {
    /// An option that has to be above 0 is 0.
    #[error(
        "setting up dispatch: `{option}` is 0, must be at least 1; raise it or leave it out for the default"
    )]
    Zero {
        /// Name of the option that is 0.
        option: &'static str,
    },
    /// A backend without replicas, or with more than there are ids.
    #[error(
        "setting up dispatch: the backend has {replicas} replicas, must be 1 to 65535; list its replicas"
    )]
    Replicas {
        /// The number of replicas given.
        replicas: usize,
    },
    /// The number of attempts at once is 0, or greater than a fetch or the backend can have.
    #[error(
        "setting up dispatch: `factor` is {factor}, must be 1 to {most}, as each attempt goes to another replica; \
         lower it, or add replicas"
    )]
    Factor {
        /// The number of attempts given.
        factor: u8,
        /// The largest number of attempts.
        most: usize,
    },
    /// Copies at idle replicas are combined with a queue for all replicas.
    #[error(
        "setting up dispatch: `copies` is \"idle\" with tokens, whose attempts wait for any replica; \
         choose another balance, or copies = \"hedge\""
    )]
    IdleTokens,
    /// The retry ratio, extra attempts per call, is outside of 0 to 1.
    #[error(
        "setting up dispatch: `retry.ratio` is {ratio}, must be 0 to 1; 0.1 allows one retry in ten calls"
    )]
    RetryRatio {
        /// The retry ratio given.
        ratio: f64,
    },
    /// The largest number of extra attempts at once, `retry.burst`, is too large.
    #[error("setting up dispatch: `retry.burst` is {burst}, must be at most {BURST_MAX}; lower it")]
    RetryBurst {
        /// The largest number of extra attempts at once that was given.
        burst: u32,
    },
    /// An option of the ramp is out of its range.
    #[error(
        "setting up dispatch: `ramp.{option}` is {value}, must be {min} to {max}; leave it out for the default"
    )]
    Ramp {
        /// Name of the option that is out of its range.
        option: &'static str,
        /// The value given, in seconds if it is a time.
        value: f64,
        /// Smallest accepted value of the option.
        min: f64,
        /// Largest accepted value of the option.
        max: f64,
    },
    /// The longest probe interval is below the shortest.
    #[error(
        "setting up dispatch: `probe.interval_max` is {max:?}, must be at least `probe.interval_min` ({min:?}); swap them"
    )]
    ProbeIntervals {
        /// The value given for `probe.interval_min`.
        min: Duration,
        /// The value given for `probe.interval_max`.
        max: Duration,
    },
}

impl Options {
    /// Checks that every option is in its range.
    ///
    /// # Errors
    /// Names the first option out of its range.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let Self {
            batch_keys_max,
            in_flight_calls_max,
            queued_calls_max: _,
            waiters_max,
            timeout,
            queue: _,
            balance: _,
            admit,
            beta: _,
            copies,
            extra: _,
            cancel: _,
            misses_wait: _,
            cores: _,
            retry: RetryOptions { per_call_max: _, ratio, burst },
            probe: ProbeOptions { failures_max, interval_min, interval_max },
            ramp,
            tenants,
        } = *self;
        let zeros = [
            ("batch_keys_max", batch_keys_max == 0),
            ("in_flight_calls_max", in_flight_calls_max == 0),
            ("waiters_max", waiters_max == 0),
            ("timeout", timeout.is_zero()),
            ("tenants", tenants.is_some_and(|tenants| tenants.tenants == 0)),
            ("probe.failures_max", failures_max == 0),
            ("probe.interval_min", interval_min.is_zero()),
            ("target_delay", admit == AdmitChoice::Delay { target: Duration::ZERO }),
        ];
        if let Some((option, _)) = zeros.into_iter().find(|(_, zero)| *zero) {
            return Err(OptionsError::Zero { option });
        }
        if !(1..=ATTEMPTS_MAX).contains(&usize::from(copies.factor())) {
            return Err(OptionsError::Factor { factor: copies.factor(), most: ATTEMPTS_MAX });
        }
        if matches!(copies, CopiesChoice::Idle { .. }) && self.has_tokens() {
            return Err(OptionsError::IdleTokens);
        }
        if !(0.0..=1.0).contains(&ratio) {
            return Err(OptionsError::RetryRatio { ratio });
        }
        if burst > BURST_MAX {
            return Err(OptionsError::RetryBurst { burst });
        }
        if interval_max < interval_min {
            return Err(OptionsError::ProbeIntervals { min: interval_min, max: interval_max });
        }
        ramp.map_or(Ok(()), |ramp| validate_ramp(&ramp))
    }

    /// Checks that the options work for so many replicas.
    ///
    /// # Errors
    /// Names the first option out of its range.
    pub fn validate_for(&self, replicas: usize) -> Result<(), OptionsError> {
        self.validate()?;
        if !(1..=usize::from(u16::MAX)).contains(&replicas) {
            return Err(OptionsError::Replicas { replicas });
        }
        let factor = self.copies.factor();
        if usize::from(factor) > replicas {
            return Err(OptionsError::Factor { factor, most: replicas });
        }
        Ok(())
    }

    /// Returns true if a rule uses the estimates of the replicas' queues.
    #[must_use]
    pub fn uses_estimates(&self) -> bool {
        let asks = matches!(self.balance, BalanceChoice::Tickets | BalanceChoice::AllTickets);
        asks || self.admit != AdmitChoice::Open
    }

    /// Returns true if attempts wait for a token of any replica, in a common queue of all (the
    /// tier), and not in the queue of one replica that is chosen in advance. Beyond the calls in
    /// flight, the common queue holds as many attempts as that of one replica.
    #[must_use]
    pub fn has_tokens(&self) -> bool {
        matches!(self.balance, BalanceChoice::Tokens { .. })
    }

    /// Returns the options of the queue of each replica.
    pub(crate) fn replica_queue(&self) -> QueueOptions {
        QueueOptions {
            order: self.queue,
            workers: self.in_flight_calls_max,
            queued_max: self.queued_calls_max,
            timeout: self.timeout,
            beta: self.uses_estimates().then_some(self.beta),
            extra_behind: self.extra == ExtraOrder::Behind && self.copies != CopiesChoice::One,
        }
    }

    /// Returns the options of the common queue of this many replicas.
    pub(crate) fn tier_queue(&self, replicas: usize) -> QueueOptions {
        let workers = self.in_flight_calls_max.saturating_mul(replicas as u32);
        QueueOptions { workers, ..self.replica_queue() }
    }
}

fn validate_ramp(ramp: &RampOptions) -> Result<(), OptionsError> {
    let RampOptions { start_keys, grow_ratio, wait_ratio, interval, settle } = *ramp;
    let range = |option, value: f64, min: f64, max: f64| {
        let refusal = OptionsError::Ramp { option, value, min, max };
        if (min..=max).contains(&value) { Ok(()) } else { Err(refusal) }
    };
    range("start", start_keys.into(), 1.0, u32::MAX.into())?;
    range("grow", grow_ratio, 1.01, 10.0)?;
    range("wait", wait_ratio, 0.01, 0.9)?;
    range("interval", interval.as_secs_f64(), 0.01, 60.0)?;
    range("settle", settle.as_secs_f64(), interval.as_secs_f64(), 3_600.0)
}

impl Default for Options {
    fn default() -> Self {
        Self {
            batch_keys_max: 100,
            in_flight_calls_max: 16,
            queued_calls_max: 256,
            waiters_max: 100_000,
            timeout: Duration::from_secs(2),
            queue: QueueChoice::default(),
            balance: BalanceChoice::default(),
            admit: AdmitChoice::default(),
            beta: Percent::BETA,
            copies: CopiesChoice::default(),
            extra: ExtraOrder::default(),
            cancel: CancelRule::default(),
            misses_wait: false,
            cores: None,
            retry: RetryOptions::default(),
            probe: ProbeOptions::default(),
            ramp: None,
            tenants: None,
        }
    }
}

impl Default for RetryOptions {
    fn default() -> Self {
        Self { per_call_max: 1, ratio: 0.1, burst: 10 }
    }
}

impl Default for ProbeOptions {
    fn default() -> Self {
        Self {
            failures_max: 5,
            interval_min: Duration::from_millis(100),
            interval_max: Duration::from_secs(10),
        }
    }
}

/// Largest accepted `retry.burst`: far above what any backend survives, and small enough that a
/// budget in thousandths of a token fits 32 bits.
const BURST_MAX: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut Options)) -> String {
        let mut options = Options::default();
        change(&mut options);
        options.validate().expect_err("these options cannot work").to_string()
    }

    #[test]
    fn default_dispatch_options_are_valid() {
        assert_eq!(Options::default().validate(), Ok(()));
    }

    #[test]
    fn invalid_option_is_refused_by_name() {
        assert!(refused(|o| o.batch_keys_max = 0).contains("`batch_keys_max` is 0"));
        assert!(refused(|o| o.in_flight_calls_max = 0).contains("`in_flight_calls_max`"));
        assert!(refused(|o| o.waiters_max = 0).contains("`waiters_max`"));
        assert!(refused(|o| o.timeout = Duration::ZERO).contains("`timeout`"));
        assert!(refused(|o| o.probe.failures_max = 0).contains("`probe.failures_max`"));
        assert!(refused(|o| o.probe.interval_min = Duration::ZERO).contains("`probe.interval_min`"));
        assert!(refused(|o| o.probe.interval_max = Duration::from_nanos(1)).contains("`probe.interval_max`"));
        let none = AdmitChoice::Delay { target: Duration::ZERO };
        assert!(refused(|o| o.admit = none).contains("`target_delay` is 0"));
        assert!(refused(|o| o.retry.ratio = f64::NAN).contains("`retry.ratio` is NaN"));
        assert!(refused(|o| o.retry.ratio = 1.5).contains("`retry.ratio` is 1.5"));
        let ramp = RampOptions::default();
        assert!(
            refused(|o| o.ramp = Some(RampOptions { start_keys: 0, ..ramp })).contains("`ramp.start` is 0")
        );
        assert!(
            refused(|o| o.ramp = Some(RampOptions { grow_ratio: f64::NAN, ..ramp })).contains("`ramp.grow`")
        );
        assert!(
            refused(|o| o.ramp = Some(RampOptions { settle: Duration::ZERO, ..ramp })).contains("0.25 to")
        );
        assert!(refused(|o| o.retry.burst = u32::MAX).contains("`retry.burst`"));
    }
}
