//! The progress bar of a simulation.

use indicatif::{ProgressBar, ProgressStyle};

/// Creates a progress bar of this many seconds of simulated time, which is shown only on a
/// terminal. `of` names the whole.
pub(super) fn bar(of: &str, seconds: u64) -> ProgressBar {
    let style =
        ProgressStyle::with_template(&format!("{{bar:40}} {{percent}}% of {of}, {{eta}} left{{msg}}"));
    ProgressBar::new(seconds).with_style(style.expect("a valid template"))
}
