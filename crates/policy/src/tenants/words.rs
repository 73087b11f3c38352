//! Exchanges between tenants as sentences.

use super::{Division, Trade};
use crate::controller::words::bytes;

/// Returns the exchange as a sentence without its end: "a gave 64.0 MiB to b and receives 57
/// reads/s". `tenants` are the tenants' names and `units` those of each resource's units per
/// second, in the order of their ids.
///
/// # Panics
/// If a tenant or a resource of the trade has no name.
#[must_use]
pub fn trade_sentence<S: AsRef<str>>(trade: &Trade, tenants: &[S], units: &[S]) -> String {
    let receives: Vec<String> = trade
        .compensation
        .iter()
        .map(|(resource, rate)| format!("{rate:.0} {}", units[resource.index()].as_ref()))
        .collect();
    let receives =
        if receives.is_empty() { "nothing: it needs no more".to_owned() } else { receives.join(" and ") };
    let (donor, receiver) = (tenants[trade.donor.index()].as_ref(), tenants[trade.receiver.index()].as_ref());
    format!("{donor} gave {} to {receiver} and receives {receives}", bytes(trade.bytes))
}

/// Returns what an exchange of `division` leads to: "both now at 1.42 times their baseline; at most
/// 1.44 is possible".
pub(super) fn outcome(trade: &Trade, division: &Division) -> String {
    let times = |index: usize| division.limited(index).map(|times| format!("{times:.2}"));
    let now = match (times(trade.donor.index()), times(trade.receiver.index())) {
        (Some(donor), Some(receiver)) if donor == receiver => {
            format!("both now at {donor} times their baseline")
        }
        (Some(donor), Some(receiver)) => format!("now at {donor} and {receiver} times their baselines"),
        (Some(donor), None) => format!("now at {donor} times its baseline and without a limit"),
        (None, Some(receiver)) => format!("now without a limit and at {receiver} times its baseline"),
        (None, None) => "both now without a limit".to_owned(),
    };
    match division.bound.filter(|bound| bound.is_finite()) {
        Some(bound) => format!("{now}; at most {bound:.2} is possible"),
        None => now,
    }
}

#[cfg(test)]
mod tests {
    use sherwood_model::{Rates, ResourceId, TenantId};

    use super::*;

    fn trade(compensation: Vec<(ResourceId, f64)>) -> Trade {
        Trade { donor: TenantId(0), receiver: TenantId(1), bytes: 128 << 20, compensation }
    }

    #[test]
    fn sentence_of_a_trade_names_its_units_and_its_outcome() {
        let division = |normalized: [f64; 2], bound| Division {
            bytes: vec![0, 0],
            rates: Rates::zero(2, 1),
            normalized: normalized.to_vec(),
            gain: normalized[0],
            bound,
            trades: Vec::new(),
        };
        let orders = trade(vec![(ResourceId(0), 299.7)]);
        let sentence = trade_sentence(&orders, &["a", "b"], &["orders reads/s"]);
        assert_eq!(sentence, "a gave 128.0 MiB to b and receives 300 orders reads/s");
        assert_eq!(
            outcome(&orders, &division([1.42, 1.421], Some(1.44))),
            "both now at 1.42 times their baseline; at most 1.44 is possible"
        );
        let free = trade_sentence(&trade(Vec::new()), &["a", "b"], &["orders reads/s"]);
        assert_eq!(free, "a gave 128.0 MiB to b and receives nothing: it needs no more");
        assert_eq!(
            outcome(&orders, &division([1.42, 1.5], Some(f64::INFINITY))),
            "now at 1.42 and 1.50 times their baselines"
        );
        assert_eq!(
            outcome(&orders, &division([1.42, 1e12], None)),
            "now at 1.42 times its baseline and without a limit"
        );
    }
}
