//! Limits that slow a store down as a shared machine does, changed while it runs.
//!
//! Each limits one resource in its own unit: the calls executed at once, the operations per second,
//! and the share of a processor. Latency follows from them through the queue that forms; no limit
//! sets or reads a latency, so latencies measured behind the limits are real effects of queueing.
//!
//! [`Gate`] is a state machine with the time as an argument. The pool checks it before each call
//! and parks its threads until the call is admitted.

mod gate;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub(crate) use gate::{Admission, Gate};

/// The limits on a store's use of resources; `None` means that the resource is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Calls executed at once, 1 to 65,536. A number above the store's threads has no effect. A
    /// smaller number takes effect as running calls end.
    pub slots: Option<u32>,
    /// Operations per second, 0.001 to 1e9: a key read, written or deleted is one. A call starts
    /// once the rate allows all operations before it.
    pub ops_per_s: Option<f64>,
    /// Processor time per wall-clock time, 0.001 to 1,024, over all threads of the store: 0.5 is
    /// half a core. A thread is parked between keys while the store is over its share.
    pub cpu_ratio: Option<f64>,
}

/// A change of one of a store's [`Limits`]; `None` lifts the limit.
///
/// ```
/// use sherwood_store::Limit;
/// assert_eq!(serde_json::from_str::<Limit>(r#"{"slots": 4}"#).unwrap(), Limit::Slots(Some(4)));
/// assert_eq!(serde_json::from_str::<Limit>(r#"{"cpu_ratio": null}"#).unwrap(), Limit::CpuRatio(None));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Sets [`Limits::slots`].
    Slots(Option<u32>),
    /// Sets [`Limits::ops_per_s`].
    OpsPerS(Option<f64>),
    /// Sets [`Limits::cpu_ratio`].
    CpuRatio(Option<f64>),
}

impl Limit {
    /// Checks the value against its range.
    ///
    /// # Errors
    /// [`LimitError::OutOfRange`], which names the range.
    pub fn validate(self) -> Result<(), LimitError> {
        let (limit, value, min, max) = match self {
            Self::Slots(slots) => ("slots", slots.map(f64::from), 1.0, 65_536.0),
            Self::OpsPerS(ops_per_s) => ("ops_per_s", ops_per_s, 0.001, 1e9),
            Self::CpuRatio(cpu_ratio) => ("cpu_ratio", cpu_ratio, 0.001, 1024.0),
        };
        match value {
            Some(value) if !(min..=max).contains(&value) => {
                Err(LimitError::OutOfRange { limit, value, min, max })
            }
            _ => Ok(()),
        }
    }
}

/// A change of a limit that was refused; the current limits stay in force.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum LimitError {
    /// The value is out of range.
    #[error("could not set `{limit}` to {value}: {min} to {max} is accepted; null lifts the limit")]
    OutOfRange {
        /// Name of the limit that was refused.
        limit: &'static str,
        /// The value that was refused.
        value: f64,
        /// Least value that the limit accepts.
        min: f64,
        /// Greatest value that the limit accepts.
        max: f64,
    },
    /// The store is a connector: its work is done by a server, whose resources it cannot limit.
    #[error("could not limit a store that is not in this process: limit its server where it runs")]
    Remote,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_out_of_range_or_nan_is_refused() {
        assert!(Limit::Slots(Some(0)).validate().is_err());
        assert!(Limit::OpsPerS(Some(0.0)).validate().is_err());
        assert!(Limit::CpuRatio(Some(f64::NAN)).validate().is_err());
        assert!(Limit::OpsPerS(Some(f64::INFINITY)).validate().is_err());
        assert_eq!(Limit::OpsPerS(None).validate(), Ok(()));
        assert_eq!(
            Limit::Slots(Some(0)).validate().unwrap_err().to_string(),
            "could not set `slots` to 0: 1 to 65536 is accepted; null lifts the limit"
        );
    }
}
