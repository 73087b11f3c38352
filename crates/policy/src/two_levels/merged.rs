//! The decisions within tenants as one decision.

use sherwood_model::Plan;

use crate::Decision;

/// Most bytes of the line of all decisions together, as of one.
const LINE_BYTES_MAX: usize = 2_000;

/// Returns the decisions of tenants, given by name, as one decision with this plan. Its line holds
/// those of the tenants that moved bytes; without any it is the first tenant's.
///
/// # Panics
/// If there is no tenant.
pub(super) fn merged<'a>(decisions: impl Iterator<Item = (&'a str, Decision)>, plan: Plan) -> Decision {
    let mut decisions = decisions.map(|(name, decision)| {
        let line = (!decision.moves.is_empty()).then(|| format!("{name}: {}", decision.line));
        (line, decision)
    });
    let (line, mut all) = decisions.next().expect("there is a tenant");
    let mut lines: Vec<String> = line.into_iter().collect();
    for (line, decision) in decisions {
        all.apply |= decision.apply;
        all.kept = all.kept.and(decision.kept);
        all.moves.extend(decision.moves);
        all.pending_bytes = all.pending_bytes.saturating_add(decision.pending_bytes);
        all.harm = all.harm.or(decision.harm);
        lines.extend(line);
    }
    all.moves.sort_by_key(|step| step.partition);
    all.plan = plan;
    if !lines.is_empty() {
        all.line = joined(&lines);
    }
    all
}

/// Joins lines up to the largest length; further ones are counted.
fn joined(lines: &[String]) -> String {
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        if index > 0 && text.len() + line.len() > LINE_BYTES_MAX {
            return format!("{text}; and {} more tenants", lines.len() - index);
        }
        let separator = if index > 0 { "; " } else { "" };
        text.push_str(separator);
        text.push_str(line);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_many_tenants_is_bounded_and_counts_the_rest() {
        let lines: Vec<String> = (0..100).map(|tenant| format!("t{tenant}: {}", "x".repeat(90))).collect();
        let text = joined(&lines);
        assert!(text.len() <= LINE_BYTES_MAX + 100, "{}", text.len());
        assert!(text.ends_with("; and 80 more tenants"), "{}", &text[text.len() - 40..]);
        assert_eq!(joined(&lines[..1]), lines[0]);
    }
}
