//! Keys of copies and of tokens.

use std::time::Duration;

use sherwood_dispatch::{BalanceChoice, CancelRule, CopiesChoice, ExtraOrder};

use super::{Draft, MILLISECOND, TIMEOUT_MAX};
use crate::problem::Origin;
use crate::raw::{Key, RawDispatch, RawHedge};
use crate::scope::{Given, Setting, given, in_range};
use crate::units::Span;

const HEDGE_MIN: Setting = Setting::new("[[backend]]", "dispatch.hedge.min", "\"1ms\"");
const AGE: Setting = Setting::new("[[backend]]", "dispatch.age", "\"5s\"");

const AGE_MAX: Span = Span(Duration::from_secs(3_600));
const HEDGE_LEAST: Span = Span(Duration::from_micros(100));

impl Draft<'_, '_> {
    /// Sets what belongs to `copies`, which is chosen already.
    pub(super) fn copies(&mut self, dispatch: &RawDispatch) {
        let RawDispatch { factor, hedge, extra, cancel, .. } = dispatch;
        self.factor(factor);
        self.hedge(hedge);
        let extras = [("behind", ExtraOrder::Behind), ("equal", ExtraOrder::Equal)];
        if let Some((origin, extra)) = self.copies_word("extra", extra, &extras) {
            self.change(&origin, |options| options.extra = extra);
        }
        let cancels =
            [("never", CancelRule::Never), ("queued", CancelRule::Queued), ("always", CancelRule::Always)];
        if let Some((origin, cancel)) = self.copies_word("cancel", cancel, &cancels) {
            self.change(&origin, |options| options.cancel = cancel);
        }
    }

    fn factor(&mut self, key: &Key<u8>) {
        let Some(Given { value: factor, origin }) = given(key) else { return };
        let copies = match self.options.copies {
            CopiesChoice::Fixed { .. } => CopiesChoice::Fixed { factor },
            CopiesChoice::Tied { .. } => CopiesChoice::Tied { factor },
            CopiesChoice::Idle { .. } => CopiesChoice::Idle { factor },
            CopiesChoice::One | CopiesChoice::Hedge { .. } => {
                return self.unused("factor", &origin, "copies = \"fixed\", \"tied\" or \"idle\"");
            }
        };
        self.change(&origin, |options| options.copies = copies);
    }

    fn hedge(&mut self, RawHedge { percentile, min }: &RawHedge) {
        let rule = "copies = \"hedge\"";
        let is_used = matches!(self.options.copies, CopiesChoice::Hedge { .. });
        let given_percentile = self.percent("hedge.percentile", percentile, is_used, rule);
        let Some(given_min) = given(min) else {
            if let (Some((origin, percentile)), CopiesChoice::Hedge { min, .. }) =
                (given_percentile, self.options.copies)
            {
                self.change(&origin, |options| options.copies = CopiesChoice::Hedge { percentile, min });
            }
            return;
        };
        let origin = given_min.origin.clone();
        let CopiesChoice::Hedge { percentile, min } = self.options.copies else {
            return self.unused("hedge.min", &origin, rule);
        };
        let min = in_range(self.problems, HEDGE_MIN, Some(given_min), Span(min), HEDGE_LEAST..=TIMEOUT_MAX).0;
        let percentile = given_percentile.map_or(percentile, |(_, percentile)| percentile);
        self.change(&origin, |options| options.copies = CopiesChoice::Hedge { percentile, min });
    }

    /// Returns the meaning of a word of an option of copies, and its place; none, with a problem,
    /// if it has none, or there are no copies.
    fn copies_word<T: Copy>(
        &mut self,
        name: &str,
        key: &Key<String>,
        words: &[(&str, T)],
    ) -> Option<(Origin, T)> {
        let Given { value, origin } = given(key)?;
        if self.options.copies == CopiesChoice::One {
            self.unused(name, &origin, "copies other than \"one\"");
            return None;
        }
        let meaning = words.iter().find(|(word, _)| *word == value);
        if meaning.is_none() {
            let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            let message =
                format!("[[backend]] dispatch: `{name}` is {value:?}, must be one of {}", known.join(", "));
            self.problems.add(&origin, message);
        }
        meaning.map(|(_, meaning)| (origin, *meaning))
    }

    /// Sets what belongs to `balance`, which is chosen already.
    pub(super) fn balance(&mut self, dispatch: &RawDispatch) {
        let RawDispatch { tokens, lookups, age, in_flight_calls_max, .. } = dispatch;
        let has_tokens = matches!(self.options.balance, BalanceChoice::Tokens { .. });
        if let Some(Given { value, origin }) = given(tokens) {
            if !has_tokens {
                self.unused("tokens", &origin, "balance = \"tokens\"");
            } else if in_flight_calls_max.is_some() {
                let message = "[[backend]] dispatch: `tokens` and `in_flight_calls_max` are two names of one \
                               option with balance = \"tokens\"; remove one of them";
                self.problems.add(&origin, message);
            } else {
                let typed = |message: String| message.replace("`in_flight_calls_max`", "`tokens`");
                self.change_or(&origin, typed, |options| options.in_flight_calls_max = value);
            }
        }
        if let Some(Given { value, origin }) = given(lookups) {
            match &mut self.options.balance {
                BalanceChoice::Tokens { lookups, .. } => *lookups = value,
                _ => self.unused("lookups", &origin, "balance = \"tokens\""),
            }
        }
        let Some(given_age) = given(age) else { return };
        let least = if has_tokens { Span(Duration::ZERO) } else { MILLISECOND };
        let origin = given_age.origin.clone();
        let value = in_range(self.problems, AGE, Some(given_age), AGE_MAX, least..=AGE_MAX).0;
        match &mut self.options.balance {
            BalanceChoice::Tokens { age, .. }
            | BalanceChoice::PeakEwma { age }
            | BalanceChoice::C3 { age }
            | BalanceChoice::Prequal { age } => *age = value,
            _ => self.unused("age", &origin, "balance = \"tokens\", \"peak-ewma\", \"c3\" or \"prequal\""),
        }
    }
}
