//! A decision between tenants as text.

use std::fmt::Write;
use std::time::Duration;

use sherwood_model::TenantId;
use sherwood_policy::tenants::{Division, trade_sentence};

use super::input::Input;
use crate::mrc::bytes;
use crate::words;

/// Most sentences about trades; the JSON document has all.
const TRADES_MAX: usize = 12;
/// Units of the resources' rates, in the order of their ids.
const UNITS: [&str; 3] = ["reads/s", "writes/s", "network B/s"];
/// Widest name of a tenant in the table, in characters.
const NAME_MAX: usize = 24;

/// Formats a decision: a row for each tenant, a sentence for each trade, and the gain.
pub(super) fn text(input: &Input, division: &Division, throughput: &[f64], time: Duration) -> String {
    let names: Vec<String> = input.names.iter().map(|name| plain(name)).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max("tenant".len());
    let mut text = format!(
        "{:<width$}  {:>11}  {:>12}  {:>12}  {:>14}  {:>12}  {:>8}\n",
        "tenant", "cache", "reads/s", "writes/s", "network B/s", "requests/s", "times"
    );
    for (index, name) in names.iter().enumerate() {
        let rates = division.rates.row(TenantId::from_index(index));
        let cache = bytes(division.bytes[index]);
        let _ = writeln!(
            text,
            "{name:<width$}  {cache:>11}  {:>12.1}  {:>12.1}  {:>14.0}  {:>12.1}  {:>8.3}",
            rates[0], rates[1], rates[2], throughput[index], division.normalized[index]
        );
    }
    text.push('\n');
    for trade in division.trades.iter().take(TRADES_MAX) {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let _ = writeln!(text, "{}", trade_sentence(trade, &names, &UNITS));
    }
    if let Some(more) = division.trades.len().checked_sub(TRADES_MAX).filter(|&more| more > 0) {
        let _ = writeln!(text, "and {more} more trades, which --json lists");
    }
    let at_most = division.bound.filter(|bound| bound.is_finite());
    let at_most = at_most.map_or(String::new(), |bound| format!("; at most {bound:.3} is possible"));
    let _ = writeln!(
        text,
        "every tenant has at least {:.3} times its baseline's throughput{at_most}",
        division.gain
    );
    let _ = writeln!(text, "decided in {:.0} us", time.as_secs_f64() * 1e6);
    text
}

/// Shortens a name, and escapes control characters, which a terminal would interpret.
pub(crate) fn plain(name: &str) -> String {
    words::escaped(&name.chars().take(NAME_MAX).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_name_cannot_control_the_terminal_or_widen_the_table() {
        assert_eq!(plain("a\u{1b}[2J"), "a\\u{1b}[2J");
        assert_eq!(plain(&"x".repeat(100)).len(), NAME_MAX);
    }
}
