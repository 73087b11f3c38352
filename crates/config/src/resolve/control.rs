//! `[slo]` and `[control]`.

use std::time::Duration;

use sherwood_model::Slo;
use sherwood_policy::{Options, PolicyError, by_name};

use crate::flags::Flags;
use crate::meaning::Control;
use crate::problem::{Origin, Problems};
use crate::raw::{RawControl, RawSlo};
use crate::scope::{Given, Setting, flag_or, given, in_range, unknown};
use crate::units::Span;

use super::policies;

const PERCENTILE: Setting = Setting::new("[slo]", "percentile", "99.0");
const BOUND: Setting = Setting::new("[slo]", "bound", "\"150ms\"");
const WINDOW: Setting = Setting::new("[slo]", "window", "\"60s\"");
const OBSERVE: Setting = Setting::new("[slo]", "observe", "\"5s\"");
const POLICY: Setting = Setting::new("[control]", "policy", "\"robinhood\"");
const DELTA: Setting = Setting::new("[control]", "delta", "\"5s\"");
const RBC_WINDOW: Setting = Setting::new("[control]", "rbc_window", "\"60s\"");
const BAND: Setting = Setting::new("[control]", "band", "[98.5, 99.5]");
const TAX: Setting = Setting::new("[control]", "tax", "0.01");

const DEFAULT_BAND: (f64, f64) = (98.5, 99.5);

/// Range of every period of the control loop, as the policies accept it.
const PERIOD_MIN: Span = Span(Duration::from_millis(1));
const PERIOD_MAX: Span = Span(Duration::from_secs(3600));

pub(super) fn slo(file: &RawSlo, problems: &mut Problems<'_>) -> Slo {
    let RawSlo { percentile, bound, window, observe, class: _, tenant: _ } = file;
    let percentile = in_range(problems, PERCENTILE, given(percentile), 99.0, 1.0..=99.99);
    let bound = in_range(problems, BOUND, given(bound), millis(150), millis(1)..=PERIOD_MAX);
    let window = in_range(problems, WINDOW, given(window), millis(60_000), PERIOD_MIN..=PERIOD_MAX);
    let observe_default = millis(5_000).min(window);
    let observe = in_range(problems, OBSERVE, given(observe), observe_default, PERIOD_MIN..=window);
    Slo { percentile, bound: bound.0, window: window.0, observe: observe.0 }
}

pub(super) fn control(
    file: &RawControl,
    slo: &Slo,
    flags: &Flags,
    policies: &[&str],
    problems: &mut Problems<'_>,
) -> Control {
    let RawControl { policy, delta, rbc_window, band, tax, dry_run, guard, tao, cliffhanger, fair, lama } =
        file;
    let policy = flag_or("--policy", flags.policy.clone(), policy);
    if let Some(policy) = policy.as_ref().filter(|policy| !policies.contains(&policy.value.as_str())) {
        refuse_policy(policy, policies, problems);
    }
    let delta = in_range(problems, DELTA, given(delta), millis(5_000), PERIOD_MIN..=PERIOD_MAX);
    let rbc_window =
        in_range(problems, RBC_WINDOW, given(rbc_window), millis(60_000), PERIOD_MIN..=PERIOD_MAX);
    Control {
        policy: policy.map_or_else(|| "robinhood".to_owned(), |policy| policy.value),
        delta: delta.0,
        rbc_window: rbc_window.0,
        band: band_of(given(band), problems),
        tax_ratio: in_range(problems, TAX, given(tax), 0.01, 0.0..=0.5),
        dry_run: dry_run.as_ref().is_some_and(|dry_run| *dry_run.get_ref()),
        guard: super::guard::resolve(guard, slo, problems),
        tao: policies::tao(tao, problems),
        cliffhanger: policies::cliffhanger(cliffhanger, problems),
        fair: policies::fair(fair, problems),
        lama: policies::lama(lama, problems),
    }
}

/// Refuses a policy that cannot be selected. If the policy exists, its own error is reported in
/// place of the list of names.
fn refuse_policy(policy: &Given<String>, policies: &[&str], problems: &mut Problems<'_>) {
    match by_name(&policy.value, &Options::default()) {
        Err(error @ PolicyError::Missing { .. }) => {
            problems.add(&policy.origin, format!("{}: {error}", POLICY.name(&policy.origin)));
        }
        _ => unknown(problems, POLICY, policy, policies),
    }
}

fn band_of(given: Option<Given<Vec<f64>>>, problems: &mut Problems<'_>) -> (f64, f64) {
    let Some(Given { value, origin }) = given else { return DEFAULT_BAND };
    match value[..] {
        [low, high] if 0.0 <= low && low < high && high <= 100.0 => (low, high),
        _ => {
            refuse_band(&value, &origin, problems);
            DEFAULT_BAND
        }
    }
}

fn refuse_band(value: &[f64], origin: &Origin, problems: &mut Problems<'_>) {
    // A refused list may have any length; four numbers are enough to identify it.
    let shown: Vec<String> = value.iter().take(4).map(ToString::to_string).collect();
    let (name, remedy) = (BAND.name(origin), BAND.remedy(origin));
    let accepted = "two percentiles from 0 to 100, the lower first";
    problems.add(origin, format!("{name} is [{}]; it must be {accepted}: {remedy}", shown.join(", ")));
}

fn millis(millis: u64) -> Span {
    Span(Duration::from_millis(millis))
}
