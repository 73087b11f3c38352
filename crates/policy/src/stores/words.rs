//! Decisions of the manager as sentences.

use crate::slo::StorePlan;

/// Returns a plan: "72 partitions of 2 duplicates, one asked and another after 9.1 ms".
pub(super) fn plan(plan: &StorePlan) -> String {
    let &StorePlan { partitions, duplicates, asked, hedge_ms } = plan;
    let s = if partitions == 1 { "" } else { "s" };
    let layout = format!("{partitions} partition{s} of {duplicates}");
    match hedge_ms {
        _ if duplicates == 1 => format!("{layout} node"),
        Some(hedge_ms) => {
            format!("{layout} duplicates, {} asked and another after {hedge_ms:.1} ms", number(asked))
        }
        None if asked == duplicates => format!("{layout} duplicates, all asked"),
        None => format!("{layout} duplicates, {} asked", number(asked)),
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
        assert_eq!(plan(&StorePlan::all_asked(144, 1)), "144 partitions of 1 node");
        assert_eq!(plan(&two), "72 partitions of 2 duplicates, all asked");
        assert_eq!(plan(&StorePlan { asked: 1, ..two }), "72 partitions of 2 duplicates, one asked");
        let hedged = StorePlan { asked: 1, hedge_ms: Some(9.08), ..StorePlan::all_asked(1, 3) };
        assert_eq!(plan(&hedged), "1 partition of 3 duplicates, one asked and another after 9.1 ms");
    }
}
