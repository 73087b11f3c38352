//! What may be changed about RobinHood.

use std::fmt::{self, Display};

/// One thing that is different.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing: what the others are compared with.
    None,
    /// A setting has another value.
    Setting {
        /// As `--set` takes it.
        key: &'static str,
        value: &'static str,
    },
    /// Another policy that was made from RobinHood's loop.
    Policy(&'static str),
}

const fn set(key: &'static str, value: &'static str) -> Change {
    Change::Setting { key, value }
}

/// Names of what may be changed.
pub(super) const NAMES: [&str; 8] =
    ["window", "band", "tax", "unfilled", "rounding", "stale", "servers", "variant"];

/// What each name stands for: the values that papers, published code and operators differ in.
const CHANGES: [(&str, &[Change]); NAMES.len()] = [
    // One interval, the length of the published code's ring, and that of the paper's million
    // requests. Unchanged it is 60 s.
    (NAMES[0], &[set("rbc_window", "5"), set("rbc_window", "54"), set("rbc_window", "250")]),
    // The slowest hundredth with its outliers, a broad tail, and all requests. Unchanged it is
    // 98.5-99.5.
    (NAMES[1], &[set("band", "99-100"), set("band", "95-100"), set("band", "0-100")]),
    // Unchanged it is 0.01.
    (NAMES[2], &[set("tax", "0.005"), set("tax", "0.02"), set("tax", "0.04")]),
    // Gifts whether a partition can fill them or not. Unchanged, none above 0.3.
    (NAMES[3], &[set("unfilled", "off")]),
    // As in the published code.
    (NAMES[4], &[set("rounding", "first")]),
    // The published code's age at most, and what a statistics server in trouble might come to.
    (NAMES[5], &[set("stale", "3"), set("stale", "15"), set("stale", "60")]),
    // One controller for all, few, and the paper's number.
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

/// Nothing, then what the names stand for, or all there is without names.
pub(super) fn of(names: &[String]) -> Vec<Change> {
    let wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    let changes = CHANGES.iter().filter(|(name, _)| wanted(name)).flat_map(|(_, changes)| *changes);
    [Change::None].into_iter().chain(changes.copied()).collect()
}

impl Change {
    /// The policy that runs.
    pub(super) fn policy(self) -> &'static str {
        match self {
            Self::Policy(name) => name,
            Self::None | Self::Setting { .. } => "robinhood",
        }
    }

    /// What is set, beside what is set for all.
    pub(super) fn settings(self) -> Option<String> {
        match self {
            Self::Setting { key, value } => Some(format!("{key}={value}")),
            Self::None | Self::Policy(_) => None,
        }
    }
}

/// As a table names it.
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
    fn every_change_changes_something_and_can_be_made() {
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
    fn names_choose() {
        assert_eq!(of(&["unfilled".to_owned()]), [Change::None, set("unfilled", "off")]);
        assert_eq!(of(&["servers".to_owned(), "tax".to_owned()]).len(), 7);
    }
}
