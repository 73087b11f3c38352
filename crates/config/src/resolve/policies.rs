//! `[control.tao]`, `[control.cliffhanger]`, `[control.fair]` and `[control.lama]`: the policies'
//! options.

use std::time::Duration;

use sherwood_policy::{
    CliffhangerOptions, FairMode, FairOptions, LamaMode, LamaOptions, TaoMode, TaoOptions,
};

use crate::problem::Problems;
use crate::raw::{RawCliffhanger, RawFair, RawLama, RawTao};
use crate::scope::{Setting, given, in_range, one_of};
use crate::units::{ByteSize, Span};

const TAO_LEARN: Setting = Setting::new("[control.tao]", "learn", "\"36m\"");
const TAO_MODE: Setting = Setting::new("[control.tao]", "mode", "\"mean\"");
const SHADOW: Setting = Setting::new("[control.cliffhanger]", "shadow", "0.01");
const CREDIT: Setting = Setting::new("[control.cliffhanger]", "credit", "\"4KiB\"");
const FAIR_MODE: Setting = Setting::new("[control.fair]", "mode", "\"feedback\"");
const LAMA_MODE: Setting = Setting::new("[control.lama]", "mode", "\"minmax\"");
const GRID: Setting = Setting::new("[control.lama]", "grid", "0.005");

const LEARN_MIN: Span = Span(Duration::from_millis(1));
const LEARN_MAX: Span = Span(Duration::from_secs(7 * 24 * 3_600));

pub(super) fn tao(file: &RawTao, problems: &mut Problems<'_>) -> TaoOptions {
    let RawTao { learn, mode } = file;
    let default = TaoOptions::default();
    let learn = in_range(problems, TAO_LEARN, given(learn), Span(default.learn), LEARN_MIN..=LEARN_MAX);
    let words = [("mean", TaoMode::Mean), ("snapshot", TaoMode::Snapshot)];
    TaoOptions { learn: learn.0, mode: one_of(problems, TAO_MODE, given(mode), &words), ..default }
}

pub(super) fn cliffhanger(file: &RawCliffhanger, problems: &mut Problems<'_>) -> CliffhangerOptions {
    let RawCliffhanger { shadow, credit } = file;
    let default = CliffhangerOptions::default();
    let credits = ByteSize(1)..=ByteSize(1 << 30);
    let credit = in_range(problems, CREDIT, given(credit), ByteSize(default.credit_bytes), credits);
    CliffhangerOptions {
        shadow: in_range(problems, SHADOW, given(shadow), default.shadow, 0.0001..=0.5),
        credit_bytes: credit.0,
    }
}

pub(super) fn fair(file: &RawFair, problems: &mut Problems<'_>) -> FairOptions {
    let RawFair { mode } = file;
    let words = [("feedback", FairMode::Feedback), ("waterfill", FairMode::Waterfill)];
    FairOptions { mode: one_of(problems, FAIR_MODE, given(mode), &words) }
}

pub(super) fn lama(file: &RawLama, problems: &mut Problems<'_>) -> LamaOptions {
    let RawLama { mode, grid } = file;
    let words = [("minmax", LamaMode::Minmax), ("sum", LamaMode::Sum), ("threshold", LamaMode::Threshold)];
    LamaOptions {
        mode: one_of(problems, LAMA_MODE, given(mode), &words),
        grid: in_range(problems, GRID, given(grid), LamaOptions::default().grid, 0.001..=0.1),
    }
}
