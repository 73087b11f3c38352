//! `timeout`, `dispatch` and `ramp` of a `[[backend]]`: concurrency limits, timeouts, retries, and
//! the ramp after a cold start.
//!
//! The dispatcher validates its options itself. Each key is set on options that are valid so far;
//! if they become invalid, the problem is reported at that key.

mod copies;

use std::time::Duration;

use sherwood_dispatch::{
    AdmitChoice, BalanceChoice, CopiesChoice, Options, QueueChoice, RampOptions, RuleError,
};
use sherwood_model::Percent;

use crate::problem::{Origin, Problems};
use crate::raw::{Key, RawBackend, RawDispatch, RawProbe, RawRamp, RawRetry};
use crate::scope::{Given, Setting, bytes, given, in_range};
use crate::units::Span;

const TIMEOUT: Setting = Setting::new("[[backend]]", "timeout", "\"2s\"");
const TARGET_DELAY: Setting = Setting::new("[[backend]]", "dispatch.target_delay", "\"20ms\"");
const INTERVAL_MIN: Setting = Setting::new("[[backend]]", "dispatch.probe.interval_min", "\"100ms\"");
const INTERVAL_MAX: Setting = Setting::new("[[backend]]", "dispatch.probe.interval_max", "\"10s\"");

const MILLISECOND: Span = Span(Duration::from_millis(1));
const TIMEOUT_MAX: Span = Span(Duration::from_secs(600));

/// Maximum interval between two probes, before the random quarter is added.
const INTERVAL_LONGEST: Span = Span(Duration::from_secs(3_600));

/// Options of one backend's dispatcher; refused keys keep their defaults.
pub(super) fn resolve(backend: &RawBackend, problems: &mut Problems<'_>) -> Options {
    let RawDispatch {
        queue,
        balance,
        admit,
        copies,
        alpha,
        beta,
        target,
        target_delay,
        extra_ratio,
        extra_burst,
        batch_keys_max,
        in_flight_calls_max,
        queued_calls_max,
        waiters_max,
        retry,
        probe,
        ..
    } = &backend.dispatch;
    let RawRetry { per_call_max, ratio, burst } = retry;
    let default = Options::default();
    let timeout = in_range(
        problems,
        TIMEOUT,
        given(&backend.timeout),
        Span(default.timeout),
        MILLISECOND..=TIMEOUT_MAX,
    );
    let mut draft = Draft { options: Options { timeout: timeout.0, ..default }, problems };
    draft.rule(queue, QueueChoice::by_name, |options, rule| options.queue = rule);
    draft.rule(balance, BalanceChoice::by_name, |options, rule| options.balance = rule);
    draft.rule(admit, AdmitChoice::by_name, |options, rule| options.admit = rule);
    draft.rule(copies, CopiesChoice::by_name, |options, rule| options.copies = rule);
    draft.copies(&backend.dispatch);
    draft.balance(&backend.dispatch);
    draft.alpha(alpha);
    draft.beta(beta);
    draft.target(target);
    draft.target_delay(target_delay);
    draft.count(batch_keys_max, |options, value| options.batch_keys_max = value);
    draft.count(in_flight_calls_max, |options, value| options.in_flight_calls_max = value);
    draft.count(queued_calls_max, |options, value| options.queued_calls_max = value);
    draft.count(waiters_max, |options, value| options.waiters_max = value);
    draft.count(per_call_max, |options, value| options.retry.per_call_max = value);
    draft.count(&probe.failures_max, |options, value| options.probe.failures_max = value);
    draft.alias("ratio", ratio, extra_ratio, |options, value| options.retry.ratio = value);
    draft.alias("burst", burst, extra_burst, |options, value| options.retry.burst = value);
    draft.intervals(probe);
    if let Some(ramp) = &backend.ramp {
        draft.ramp(ramp.get_ref());
    }
    draft.options
}

/// Refuses more copies of a call than there are replicas.
pub(super) fn check_replicas(
    raw: &RawBackend,
    options: &Options,
    replicas: usize,
    problems: &mut Problems<'_>,
) {
    let RawDispatch { copies, factor, .. } = &raw.dispatch;
    let origin = factor.as_ref().map(bytes).or(copies.as_ref().map(bytes));
    // A backend without a store has none, and makes no calls.
    if let (Some(origin), Err(error)) = (origin, options.validate_for(replicas))
        && replicas > 0
    {
        problems.add(&origin, format!("[[backend]] {error}"));
    }
}

/// Options that are valid so far, to which keys are applied.
struct Draft<'d, 'p> {
    options: Options,
    problems: &'d mut Problems<'p>,
}

impl Draft<'_, '_> {
    fn count(&mut self, key: &Key<u32>, set: impl FnOnce(&mut Options, u32)) {
        if let Some(given) = given(key) {
            self.change(&given.origin, |options| set(options, given.value));
        }
    }

    /// Chooses a rule by its name.
    fn rule<T>(
        &mut self,
        key: &Key<String>,
        by_name: impl FnOnce(&str) -> Result<T, RuleError>,
        set: impl FnOnce(&mut Options, T),
    ) {
        let Some(name) = given(key) else { return };
        match by_name(&name.value) {
            Ok(rule) => self.change(&name.origin, |options| set(options, rule)),
            Err(error) => self.problems.add(&name.origin, format!("[[backend]] dispatch: {error}")),
        }
    }

    /// Sets the percentile below which a call of `queue = "edf"` is hopeless.
    fn alpha(&mut self, key: &Key<f64>) {
        let is_used = matches!(self.options.queue, QueueChoice::Edf { .. });
        if let Some((origin, alpha)) = self.percent("alpha", key, is_used, "queue = \"edf\"") {
            self.change(&origin, |options| options.queue = QueueChoice::Edf { alpha });
        }
    }

    /// Sets the percentile that estimates take for a call.
    fn beta(&mut self, key: &Key<f64>) {
        let is_used = self.options.uses_estimates();
        let rules = "balance = \"tickets\", admit = \"deadline\" or admit = \"delay\"";
        if let Some((origin, beta)) = self.percent("beta", key, is_used, rules) {
            self.change(&origin, |options| options.beta = beta);
        }
    }

    /// Sets the share of missed deadlines for which `admit = "deadline"` chooses β.
    fn target(&mut self, key: &Key<f64>) {
        let Some(Given { value, origin }) = given(key) else { return };
        if !matches!(self.options.admit, AdmitChoice::Deadline { .. }) {
            return self.unused("target", &origin, "admit = \"deadline\"");
        }
        match Percent::new("target", value * 100.0) {
            Ok(target) => {
                let admit = AdmitChoice::Deadline { target: Some(target) };
                self.change(&origin, |options| options.admit = admit);
            }
            Err(_) => {
                let message = format!(
                    "[[backend]] dispatch: `target` is {value}, must be 0.0001 to 0.9999, a share of the deadlines; \
                     0.03 lets three of a hundred be missed"
                );
                self.problems.add(&origin, message);
            }
        }
    }

    /// Sets the longest queueing delay of `admit = "delay"`.
    fn target_delay(&mut self, key: &Key<Span>) {
        let Some(target) = given(key) else { return };
        if !matches!(self.options.admit, AdmitChoice::Delay { .. }) {
            return self.unused("target_delay", &target.origin, "admit = \"delay\"");
        }
        let origin = target.origin.clone();
        let target =
            in_range(self.problems, TARGET_DELAY, Some(target), MILLISECOND, MILLISECOND..=TIMEOUT_MAX).0;
        self.change(&origin, |options| options.admit = AdmitChoice::Delay { target });
    }

    /// Returns a percentage of a rule and its place; none, with a problem, if it is out of range or
    /// belongs to `rules` that were not chosen.
    fn percent(
        &mut self,
        name: &'static str,
        key: &Key<f64>,
        is_used: bool,
        rules: &str,
    ) -> Option<(Origin, Percent)> {
        let Given { value, origin } = given(key)?;
        if !is_used {
            self.unused(name, &origin, rules);
            return None;
        }
        match Percent::new(name, value) {
            Ok(percent) => Some((origin, percent)),
            Err(error) => {
                self.problems.add(&origin, format!("[[backend]] dispatch: {error}"));
                None
            }
        }
    }

    fn unused(&mut self, name: &str, origin: &Origin, rules: &str) {
        let message = format!(
            "[[backend]] dispatch: `{name}` has an effect with {rules} only; choose that rule, or remove `{name}`"
        );
        self.problems.add(origin, message);
    }

    /// Sets an option of the budget of extra attempts, which is `retry.…` or `extra_…` in the file.
    fn alias<T: Clone>(
        &mut self,
        name: &str,
        retry: &Key<T>,
        extra: &Key<T>,
        set: impl FnOnce(&mut Options, T),
    ) {
        match (given(retry), given(extra)) {
            (Some(_), Some(extra)) => self.problems.add(
                &extra.origin,
                format!(
                    "[[backend]] dispatch: `extra_{name}` and `retry.{name}` are two names of one option; \
                     remove one of them"
                ),
            ),
            (Some(retry), None) => self.change(&retry.origin, |options| set(options, retry.value)),
            (None, Some(extra)) => {
                let typed = |message: String| message.replace("`retry.", "`extra_");
                self.change_or(&extra.origin, typed, |options| set(options, extra.value));
            }
            (None, None) => {}
        }
    }

    /// Sets both intervals at once: the valid range of one depends on the other.
    fn intervals(&mut self, probe: &RawProbe) {
        let RawProbe { failures_max: _, interval_min, interval_max } = probe;
        let Some(origin) = interval_max.as_ref().or(interval_min.as_ref()).map(bytes) else { return };
        let default = self.options.probe;
        let mut interval = |setting, key, default| {
            in_range(self.problems, setting, given(key), Span(default), MILLISECOND..=INTERVAL_LONGEST).0
        };
        let min = interval(INTERVAL_MIN, interval_min, default.interval_min);
        let max = interval(INTERVAL_MAX, interval_max, default.interval_max);
        self.change(&origin, |options| (options.probe.interval_min, options.probe.interval_max) = (min, max));
    }

    /// Switches the ramp on and sets its keys.
    fn ramp(&mut self, ramp: &RawRamp) {
        let RawRamp { start, grow, wait, interval, settle } = ramp;
        self.options.ramp = Some(RampOptions::default());
        self.ramp_key(start, |ramp, value| ramp.start_keys = value);
        self.ramp_key(grow, |ramp, value| ramp.grow_ratio = value);
        self.ramp_key(wait, |ramp, value| ramp.wait_ratio = value);
        // `settle` before `interval`, whose valid range depends on it.
        self.ramp_key(settle, |ramp, value| ramp.settle = value.0);
        self.ramp_key(interval, |ramp, value| ramp.interval = value.0);
    }

    fn ramp_key<T: Clone>(&mut self, key: &Key<T>, set: impl FnOnce(&mut RampOptions, T)) {
        if let Some(given) = given(key) {
            self.change(&given.origin, |options| set(options.ramp.get_or_insert_default(), given.value));
        }
    }

    /// Applies the change if the options stay valid; otherwise adds a problem at `origin`.
    fn change(&mut self, origin: &Origin, change: impl FnOnce(&mut Options)) {
        self.change_or(origin, |message| message, change);
    }

    /// Makes the change as [`change`](Self::change) does. The message of a refusal goes through
    /// `typed`, which puts in the key as it was typed.
    fn change_or(
        &mut self,
        origin: &Origin,
        typed: impl FnOnce(String) -> String,
        change: impl FnOnce(&mut Options),
    ) {
        let mut changed = self.options;
        change(&mut changed);
        match changed.validate() {
            Ok(()) => self.options = changed,
            Err(error) => self.problems.add(origin, typed(format!("[[backend]] {error}"))),
        }
    }
}
