//! `[control.guard]`.

use std::time::Duration;

use sherwood_model::Slo;
use sherwood_policy::GuardOptions;

use crate::problem::Problems;
use crate::raw::RawGuard;
use crate::scope::{Setting, given, in_range};
use crate::units::Span;

const WORSE: Setting = Setting::new("[control.guard]", "worse", "0.25");
const MISS_RISE: Setting = Setting::new("[control.guard]", "miss_rise", "0.1");
const BLAME: Setting = Setting::new("[control.guard]", "blame", "0.5");
const FREEZE: Setting = Setting::new("[control.guard]", "freeze", "\"10m\"");
const MEMORY: Setting = Setting::new("[control.guard]", "memory", "\"30m\"");

const TIMES: std::ops::RangeInclusive<Span> =
    Span(Duration::from_millis(1))..=Span(Duration::from_secs(24 * 3_600));

/// Resolves the guard of `slo`; none when it is switched off, although its keys are still checked.
pub(super) fn resolve(file: &RawGuard, slo: &Slo, problems: &mut Problems<'_>) -> Option<GuardOptions> {
    let RawGuard { enabled, worse, miss_rise, blame, freeze, memory } = file;
    let default = GuardOptions::default();
    let options = GuardOptions {
        percentile: slo.percentile,
        bound: slo.bound,
        worse_ratio: in_range(problems, WORSE, given(worse), default.worse_ratio, 0.01..=100.0),
        miss_rise_ratio: in_range(
            problems,
            MISS_RISE,
            given(miss_rise),
            default.miss_rise_ratio,
            0.01..=100.0,
        ),
        blame_ratio: in_range(problems, BLAME, given(blame), default.blame_ratio, 0.01..=1.0),
        freeze: in_range(problems, FREEZE, given(freeze), Span(default.freeze), TIMES).0,
        memory: in_range(problems, MEMORY, given(memory), Span(default.memory), TIMES).0,
    };
    let enabled = enabled.as_ref().is_none_or(|enabled| *enabled.get_ref());
    enabled.then_some(options)
}
