//! A decision as one line of the log.
//!
//! The line is below 2,000 bytes: at most [`NAMED_MAX`] partitions of each kind are named, the
//! largest moves first, each by at most [`NAME_BYTES_MAX`] bytes; the others are counted.

use std::cmp::Reverse;

use sherwood_model::PartitionId;

use super::decision::{Kept, Move, Reason};

/// Largest number of partitions that a log line names of each kind (gained, gave, noted).
const NAMED_MAX: usize = 6;

/// Largest number of bytes of a partition's name that a log line shows.
const NAME_BYTES_MAX: usize = 40;

type Name<'a> = &'a dyn Fn(PartitionId) -> String;

/// Formats a decision as one line of the log.
pub(super) fn line(apply: bool, kept: Option<Kept>, moves: &[Move], name: Name<'_>) -> String {
    let mut gained: Vec<&Move> = moves.iter().filter(|m| m.after_bytes > m.before_bytes).collect();
    let mut gave: Vec<&Move> = moves.iter().filter(|m| m.after_bytes < m.before_bytes).collect();
    gained.sort_by_key(|m| (Reverse(difference(m)), m.partition));
    gave.sort_by_key(|m| (Reverse(difference(m)), m.partition));
    let clauses = [gains(&gained, name), gifts(&gave, name), notes(moves, name)];
    let clauses = clauses.into_iter().flatten().collect::<Vec<_>>().join("; ");
    let head = head(kept, &gained, &gave);
    let prefix = if apply { "" } else { "dry run, not applied: " };
    let separator = match (clauses.is_empty(), kept) {
        (true, _) => "",
        (false, None) => ": ",
        (false, Some(_)) => "; ",
    };
    format!("{prefix}{head}{separator}{clauses}")
}

/// Returns a partition's name, cut to [`NAME_BYTES_MAX`] bytes.
pub(super) fn shortened(name: &str) -> String {
    if name.len() <= NAME_BYTES_MAX {
        return name.to_owned();
    }
    let end =
        (0..=NAME_BYTES_MAX - '…'.len_utf8()).rev().find(|&end| name.is_char_boundary(end)).unwrap_or(0);
    format!("{}…", &name[..end])
}

fn head(kept: Option<Kept>, gained: &[&Move], gave: &[&Move]) -> String {
    let sum = |moves: &[&Move]| moves.iter().map(|m| difference(m)).fold(0_u64, u64::saturating_add);
    match kept {
        Some(Kept::Shared) => format!("set the budgets aside: {}", Kept::Shared),
        Some(kept) => format!("kept the budgets: {kept}"),
        None => format!("moved {}", bytes(sum(gained).max(sum(gave)))),
    }
}

/// Lists partitions that gained bytes. A reason of the same kind as the one before is abbreviated.
fn gains(gained: &[&Move], name: Name<'_>) -> Option<String> {
    let mut said: Option<Reason> = None;
    let word = |m: &&Move| {
        let reason = match (m.reason, said) {
            (Reason::Claim { ratio, .. }, Some(Reason::Claim { .. })) => format!(" ({:.0}%)", ratio * 100.0),
            (reason, Some(said)) if reason == said => String::new(),
            (reason, _) => format!(" ({reason})"),
        };
        said = Some(m.reason);
        format!("{} +{}{reason}", name(m.partition), bytes(difference(m)))
    };
    listed(gained, word)
}

/// Lists partitions that gave bytes. The reason, tax or too small a claim, is left out.
fn gifts(gave: &[&Move], name: Name<'_>) -> Option<String> {
    let list = listed(gave, |m| format!("{} -{}", name(m.partition), bytes(difference(m))))?;
    Some(format!("given by {list}"))
}

/// Lists partitions whose budget was held by a rule, such as a pin.
fn notes(moves: &[Move], name: Name<'_>) -> Option<String> {
    let noted = |m: &&Move| {
        matches!(m.reason, Reason::AtFloor | Reason::AtMaximum | Reason::Unfilled | Reason::DryRun { .. })
    };
    let noted: Vec<&Move> = moves.iter().filter(noted).collect();
    listed(&noted, |m| format!("{} {}", name(m.partition), m.reason))
}

fn listed<'m>(moves: &[&'m Move], word: impl FnMut(&&'m Move) -> String) -> Option<String> {
    let mut words: Vec<String> = moves.iter().take(NAMED_MAX).map(word).collect();
    if moves.len() > NAMED_MAX {
        words.push(format!("{} more", moves.len() - NAMED_MAX));
    }
    (!words.is_empty()).then(|| words.join(", "))
}

fn difference(m: &Move) -> u64 {
    m.after_bytes.abs_diff(m.before_bytes)
}

/// Formats bytes with one decimal of the largest unit that fits.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Signal;

    const SIGNAL: Signal = Signal { before: "blocked ", after: " of the slow requests" };
    const MIB: u64 = 1 << 20;

    fn moved(id: u16, before_bytes: u64, after_bytes: u64, reason: Reason) -> Move {
        Move { partition: PartitionId(id), before_bytes, after_bytes, reason }
    }

    fn claim(ratio: f64) -> Reason {
        Reason::Claim { ratio, signal: SIGNAL }
    }

    fn backend(id: PartitionId) -> String {
        format!("b{:02}", id.0)
    }

    #[test]
    fn log_line_lists_gains_losses_and_holds_with_reasons() {
        let moves = [
            moved(1, 10 * MIB, 11 * MIB, claim(0.27)),
            moved(3, 10 * MIB, 8 * MIB, Reason::Taxed),
            moved(6, 10 * MIB, 12 * MIB, claim(0.52)),
            moved(7, 10 * MIB, 9 * MIB, Reason::Unfilled),
            moved(11, MIB, MIB, Reason::AtFloor),
        ];
        assert_eq!(
            line(true, None, &moves, &backend),
            "moved 3.0 MiB: b06 +2.0 MiB (blocked 52% of the slow requests), b01 +1.0 MiB (27%); \
             given by b03 -2.0 MiB, b07 -1.0 MiB; b07 has room left to fill, b11 kept at its floor"
        );
    }

    #[test]
    fn log_line_states_the_expected_change_of_a_step() {
        let aim = |now, then| Reason::Aim(crate::Aim { what: "query P99", now, then, unit: " ms" });
        let moves = [moved(0, MIB, 2 * MIB, aim(120.0, 40.0)), moved(1, 2 * MIB, MIB, aim(3.0, 4.0))];
        let expected = "moved 1.0 MiB: b00 +1.0 MiB (query P99 from 120.0 to 40.0 ms); given by b01 -1.0 MiB";
        assert_eq!(line(true, None, &moves, &backend), expected);
    }

    #[test]
    fn log_line_states_why_no_bytes_moved() {
        let kept = line(false, Some(Kept::EqualLatencies), &[], &backend);
        assert_eq!(kept, "dry run, not applied: kept the budgets: all requests took equally long");
        let fitted = [moved(0, 5, 4, Reason::Fitted), moved(1, 5, 7_000, Reason::Fitted)];
        assert_eq!(
            line(true, Some(Kept::NoRequests), &fitted, &backend),
            "kept the budgets: no request finished in the window; b01 +6.8 KiB (to fit the total, the floors and \
             the pins); given by b00 -1 B"
        );
        let shared = line(true, Some(Kept::Shared), &[], &backend);
        assert_eq!(shared, "set the budgets aside: all partitions share one LRU");
    }

    #[test]
    fn log_line_is_below_its_bound_for_any_number_of_partitions() {
        let long = |_: PartitionId| shortened(&"ÄÖ".repeat(100));
        let reasons = [claim(0.5), Reason::Unfilled, Reason::AtFloor, Reason::Fitted];
        let moves: Vec<Move> = (0..60_000_u16)
            .map(|id| moved(id, u64::from(id % 3) << 40, 1 << 40, reasons[usize::from(id % 4)]))
            .collect();
        let line = line(false, None, &moves, &long);
        assert!(line.len() <= 2_000, "{} bytes", line.len());
        assert!(line.contains("more"));
    }

    #[test]
    fn partition_names_are_cut_at_character_boundaries() {
        assert_eq!(shortened("catalog"), "catalog");
        assert_eq!(shortened(&"a".repeat(41)), format!("{}…", "a".repeat(37)));
        assert!(shortened(&"Ä".repeat(41)).len() <= NAME_BYTES_MAX);
    }
}
