//! Changes to RobinHood that can be tried one at a time.

use std::fmt::{self, Display};

/// A single difference from the policy RobinHood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// No difference: the baseline, RobinHood itself.
    None,
    /// A setting with another value.
    Setting {
        /// The setting's key, as `--set` takes it.
        key: &'static str,
        value: &'static str,
    },
    /// A policy derived from RobinHood's control loop.
    Policy(&'static str),
}

const fn set(key: &'static str, value: &'static str) -> Change {
    Change::Setting { key, value }
}

/// Names of the available changes.
pub(super) const NAMES: [&str; 8] =
    ["window", "band", "tax", "unfilled", "rounding", "stale", "servers", "variant"];

/// Changes by name: values used in papers, in published code and by operators.
const CHANGES: [(&str, &[Change]); NAMES.len()] = [
    // One interval, the length of the ring in the published code, and that of the paper's million
    // requests. The default is 60 s.
    (NAMES[0], &[set("rbc_window", "5"), set("rbc_window", "54"), set("rbc_window", "250")]),
    // The slowest hundredth with its outliers, a broad tail, and all requests. The default is
    // 98.5-99.5.
    (NAMES[1], &[set("band", "99-100"), set("band", "95-100"), set("band", "0-100")]),
    // The default is 0.01.
    (NAMES[2], &[set("tax", "0.005"), set("tax", "0.02"), set("tax", "0.04")]),
    // Moves memory even to partitions that cannot fill it. By default at most 0.3 may be unfilled.
    (NAMES[3], &[set("unfilled", "off")]),
    // As in the published code.
    (NAMES[4], &[set("rounding", "first")]),
    // The maximum age in the published code, and longer delays of an overloaded statistics server.
    (NAMES[5], &[set("stale", "3"), set("stale", "15"), set("stale", "60")]),
    // A single controller, a few, and the paper's number.
    (NAMES[6], &[set("servers", "1"), set("servers", "2"), set("servers", "16")]),
    (
        NAMES[7],
        &[
            Change::Policy("crit_path"),
            Change::Policy("crit_path_window"),
            Change::Policy("crit_path_small_window"),
            Change::Policy("crit_smooth"),
            Change::Policy("crit_path_w_delta"),
            Change::Policy("latency"),
            Change::Policy("hit_ratio"),
            Change::Policy("req_rate"),
            Change::Policy("prototype"),
        ],
    ),
];

/// Returns the baseline followed by the named changes, or by all changes when no name is given.
pub(super) fn of(names: &[String]) -> Vec<Change> {
    let wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    let changes = CHANGES.iter().filter(|(name, _)| wanted(name)).flat_map(|(_, changes)| *changes);
    [Change::None].into_iter().chain(changes.copied()).collect()
}

impl Change {
    /// Name of the policy to run.
    pub(super) fn policy(self) -> &'static str {
        match self {
            Self::Policy(name) => name,
            Self::None | Self::Setting { .. } => "robinhood",
        }
    }

    /// The setting to add to those of all runs, if any.
    pub(super) fn settings(self) -> Option<String> {
        match self {
            Self::Setting { key, value } => Some(format!("{key}={value}")),
            Self::None | Self::Policy(_) => None,
        }
    }
}

/// Formats the change as in tables.
impl Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.pad("unchanged"),
            Self::Setting { key, value } => f.pad(&format!("{key}={value}")),
            Self::Policy(name) => f.pad(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sherwood_policy::available_without_options;
    use sherwood_sim::Knobs;

    #[test]
    fn every_change_differs_from_robinhood_and_has_a_valid_setup() {
        let mut seen = Vec::new();
        for change in of(&[]) {
            assert!(!seen.contains(&change), "{change} twice");
            assert!(available_without_options().contains(&change.policy()));
            if let Change::Setting { key, value } = change {
                let (mut knobs, unchanged) = (Knobs::default(), format!("{:?}", Knobs::default()));
                knobs.set(key, value).expect(key);
                assert_ne!(format!("{knobs:?}"), unchanged, "{change}");
            }
            seen.push(change);
        }
        assert_eq!(seen.len(), 27);
    }

    #[test]
    fn names_select_changes_to_robinhood() {
        assert_eq!(of(&["unfilled".to_owned()]), [Change::None, set("unfilled", "off")]);
        assert_eq!(of(&["servers".to_owned(), "tax".to_owned()]).len(), 7);
    }
}
