//! Decisions of the manager as sentences.

use std::fmt;

use crate::slo::StorePlan;

impl fmt::Display for StorePlan {
    /// Writes a plan as "72 partitions of 2 duplicates, one asked and another after 9.1 ms".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Self { partitions, duplicates, asked, hedge_ms } = self;
        let s = if partitions == 1 { "" } else { "s" };
        write!(f, "{partitions} partition{s} of {duplicates}")?;
        match hedge_ms {
            _ if duplicates == 1 => f.write_str(" node"),
            Some(hedge_ms) => {
                write!(f, " duplicates, {} asked and another after {hedge_ms:.1} ms", number(asked))
            }
            None if asked == duplicates => f.write_str(" duplicates, all asked"),
            None => write!(f, " duplicates, {} asked", number(asked)),
        }
    }
}

fn number(asked: u32) -> String {
    if asked == 1 { "one".to_owned() } else { asked.to_string() }
}

/// Returns a share in percent: "99.87%".
pub(super) fn percent(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_named_by_layout_and_way_to_ask() {
        let two = StorePlan::all_asked(72, 2);
        assert_eq!(StorePlan::all_asked(144, 1).to_string(), "144 partitions of 1 node");
        assert_eq!(two.to_string(), "72 partitions of 2 duplicates, all asked");
        assert_eq!((StorePlan { asked: 1, ..two }).to_string(), "72 partitions of 2 duplicates, one asked");
        let hedged = StorePlan { asked: 1, hedge_ms: Some(9.08), ..StorePlan::all_asked(1, 3) };
        assert_eq!(hedged.to_string(), "1 partition of 3 duplicates, one asked and another after 9.1 ms");
    }
}
