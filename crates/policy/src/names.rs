//! Construction of policies by name.

use sherwood_model::did_you_mean;
use thiserror::Error;

use crate::policies::{
    BubbleWrapped, Cliffhanger, Critical, CriticalSlope, CriticalSmooth, Equal, Fair, HitRatio, Lama,
    Latency, OfflineOpt, Prototype, RequestRate, Shared, Static, Tao,
};
use crate::{Options, OptionsError, Policy};

/// Names of the available policies, in the order in which they are shown.
const AVAILABLE: [&str; 19] = [
    "robinhood",
    "shared-lru",
    "static",
    "equal",
    "tao",
    "cliffhanger",
    "fair",
    "lama",
    "crit_path",
    "crit_path_window",
    "crit_path_small_window",
    "crit_smooth",
    "crit_path_w_delta",
    "latency",
    "hit_ratio",
    "req_rate",
    "prototype",
    "offline_opt",
    "bubble_wrap",
];

/// Number of names at the end of [`AVAILABLE`] whose policies cannot run without options of their
/// own: schedules, for experiments.
const WITH_OPTIONS: usize = 2;

/// Names reserved for planned policies.
const PLANNED: [&str; 5] = ["baseline", "drf", "hare", "memshare", "non-partitioned"];

/// Reason why a policy cannot be constructed.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PolicyError {
    /// No policy has that name.
    #[error(
        "cannot use policy {name:?}: it is not known; choose one of {}{}",
        choice(),
        did_you_mean(name, available_without_options())
    )]
    Unknown {
        /// The name that no policy has.
        name: String,
    },
    /// The name is reserved for a policy that does not exist yet.
    #[error("cannot use policy {name:?}: it is not built yet; choose one of {}", choice())]
    NotBuilt {
        /// The reserved name that was given.
        name: &'static str,
    },
    /// The policy's own options are missing.
    #[error(
        "cannot use policy {policy:?} without a schedule, its option of that name; choose one of {}",
        choice()
    )]
    Missing {
        /// Name of the policy and of its option.
        policy: &'static str,
    },
    /// `bubble_wrap` is configured to wrap itself.
    #[error("cannot use bubble_wrap inside of bubble_wrap: name the policy that divides the total")]
    Nested,
    /// The policy's own options are invalid.
    #[error(transparent)]
    Options(#[from] OptionsError),
}

/// The names that [`by_name`] accepts.
#[must_use]
pub fn available() -> &'static [&'static str] {
    &AVAILABLE
}

/// The names of [`available`] that need no options of their own.
#[must_use]
pub fn available_without_options() -> &'static [&'static str] {
    &AVAILABLE[..AVAILABLE.len() - WITH_OPTIONS]
}

fn choice() -> String {
    available_without_options().join(", ")
}

/// Constructs the policy called `name`, in its initial state. `options` must be valid
/// ([`Options::validate`]).
///
/// ```
/// use sherwood_policy::{Options, PolicyError, by_name};
/// assert_eq!(by_name("robinhood", &Options::default())?.name(), "robinhood");
/// assert!(matches!(by_name("hare", &Options::default()), Err(PolicyError::NotBuilt { .. })));
/// # Ok::<(), PolicyError>(())
/// ```
///
/// # Errors
/// A name that is unknown or not built yet, with a list of the known ones; an option that the
/// policy needs and that is missing.
pub fn by_name(name: &str, options: &Options) -> Result<Box<dyn Policy>, PolicyError> {
    Ok(match name {
        "robinhood" => Box::new(Critical::robinhood(options)),
        "shared-lru" => Box::new(Shared),
        "static" => Box::new(Static),
        "equal" => Box::new(Equal),
        "tao" => Box::new(Tao::new(options)),
        "cliffhanger" => Box::new(Cliffhanger::new(options)),
        "fair" => Box::new(Fair::new(options)),
        "lama" => Box::new(Lama::new(options)),
        "crit_path" => Box::new(Critical::path(options)),
        "crit_path_window" => Box::new(Critical::window(options)),
        "crit_path_small_window" => Box::new(Critical::small_window(options)),
        "crit_smooth" => Box::new(CriticalSmooth::new(options)),
        "crit_path_w_delta" => Box::new(CriticalSlope::new(options)),
        "latency" => Box::new(Latency::new(options)),
        "hit_ratio" => Box::new(HitRatio::new(options)),
        "req_rate" => Box::new(RequestRate::new(options)),
        "prototype" => Box::new(Prototype),
        "offline_opt" => Box::new(OfflineOpt::new(options)?),
        "bubble_wrap" => Box::new(bubble_wrapped(options)?),
        _ => return Err(refused(name)),
    })
}

fn bubble_wrapped(options: &Options) -> Result<BubbleWrapped, PolicyError> {
    let Some(wrap) = &options.bubble_wrap else {
        return Err(PolicyError::Missing { policy: "bubble_wrap" });
    };
    // Checked before the call, so that the recursion is one level deep.
    if wrap.policy == "bubble_wrap" {
        return Err(PolicyError::Nested);
    }
    Ok(BubbleWrapped::new(by_name(&wrap.policy, options)?, wrap.stages.clone())?)
}

fn refused(name: &str) -> PolicyError {
    match PLANNED.iter().find(|&&planned| planned == name) {
        Some(name) => PolicyError::NotBuilt { name },
        None => PolicyError::Unknown { name: name.to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BubbleWrap, SizeStage, TotalStage};

    fn options() -> Options {
        let stage = SizeStage { until_s: 1.0, budgets_bytes: vec![1] };
        let stages = vec![TotalStage { until_s: 1.0, total_bytes: 1 }];
        let bubble_wrap = Some(BubbleWrap { policy: "robinhood".to_owned(), stages });
        Options { offline_opt: vec![stage], bubble_wrap, ..Options::default() }
    }

    #[test]
    fn available_name_constructs_the_policy_of_that_name() {
        for &name in available() {
            assert_eq!(by_name(name, &options()).expect(name).name(), name);
        }
    }

    #[test]
    fn only_shared_lru_starts_without_a_division_also_inside_bubble_wrap() {
        let shared = |name: &&&str| by_name(name, &options()).expect(name).starts_shared();
        assert_eq!(available().iter().filter(shared).collect::<Vec<_>>(), [&"shared-lru"]);
        let mut wrapped = options();
        wrapped.bubble_wrap.as_mut().expect("given").policy = "shared-lru".to_owned();
        assert!(by_name("bubble_wrap", &wrapped).expect("given").starts_shared());
    }

    #[test]
    fn names_without_options_construct_with_default_options() {
        let by_name_alone = |name: &&&str| by_name(name, &Options::default()).is_ok();
        let made: Vec<&str> = available().iter().filter(by_name_alone).copied().collect();
        assert_eq!(made, available_without_options());
        let refusal = by_name("offline_opt", &Options::default()).err().expect("refused").to_string();
        assert!(
            refusal.contains("without a schedule") && refusal.ends_with("req_rate, prototype"),
            "{refusal}"
        );
    }

    #[test]
    fn unknown_or_planned_name_is_refused_with_the_known_names() {
        let refusal = |name| by_name(name, &options()).err().expect("refused").to_string();
        for name in PLANNED {
            assert!(refusal(name).contains("not built yet; choose one of robinhood, shared-lru"));
        }
        assert!(refusal("robin hood").starts_with("cannot use policy \"robin hood\": it is not known"));
        assert!(
            refusal("robin hood").ends_with(": did you mean \"robinhood\"?"),
            "{}",
            refusal("robin hood")
        );
    }

    #[test]
    fn timed_policy_without_a_schedule_is_refused() {
        let error = |name, options: &Options| by_name(name, options).err().expect("refused");
        assert_eq!(error("offline_opt", &Options::default()), PolicyError::Missing { policy: "offline_opt" });
        assert_eq!(error("bubble_wrap", &Options::default()), PolicyError::Missing { policy: "bubble_wrap" });
        let mut nested = options();
        nested.bubble_wrap.as_mut().expect("set above").policy = "bubble_wrap".to_owned();
        assert_eq!(error("bubble_wrap", &nested), PolicyError::Nested);
        let mut unordered = options();
        unordered.offline_opt.push(SizeStage { until_s: 0.5, budgets_bytes: vec![1] });
        assert!(error("offline_opt", &unordered).to_string().contains("stage 1 does not"));
    }
}
