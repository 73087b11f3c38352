//! Axes: the position of a value on a picture, and the labels beside it.

/// An axis from 0 to `end`, with labels at some values.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub(crate) name: String,
    pub(crate) end: f64,
    /// Values on the axis from 0 to `end`, and their labels.
    pub(crate) ticks: Vec<(f64, String)>,
}

/// Approximate number of ticks on an axis.
const TICKS: f64 = 10.0;

impl Axis {
    /// Creates a numeric axis up to `end`, which is above 0, with ticks at round numbers.
    pub(crate) fn of(name: impl Into<String>, end: f64) -> Self {
        let ticks = ticks(end).map(|value| (value, value.to_string())).collect();
        Self { name: name.into(), end, ticks }
    }

    /// Creates an axis of shares from 0 to 1, labelled as percentages.
    pub(crate) fn shares(name: impl Into<String>) -> Self {
        let tick = |percent: u32| (f64::from(percent) / 100.0, format!("{percent}%"));
        Self { name: name.into(), end: 1.0, ticks: (0..=100).step_by(20).map(tick).collect() }
    }

    /// Position of `value` as a share of the axis, clamped to 0..=1.
    pub(super) fn share(&self, value: f64) -> f64 {
        (value / self.end).clamp(0.0, 1.0)
    }
}

/// Returns values along an axis from 0 to `end`, in steps of 1, 2 or 5 times a power of ten.
fn ticks(end: f64) -> impl Iterator<Item = f64> {
    let power = power_of_ten(end / TICKS);
    let step = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power).into_iter().find(|step| end / step <= TICKS);
    let step = step.unwrap_or(end);
    let count = (end / step + 1e-9).floor() as u32;
    // Rounding avoids labels such as 0.30000000000000004.
    (0..=count).map(move |i| (f64::from(i) * step * 1e6).round() / 1e6)
}

/// Returns the largest power of ten that is at most `value`, which is above 0. It is read from the
/// decimal notation, because logarithms differ between machines.
fn power_of_ten(value: f64) -> f64 {
    let decimals = format!("{value:e}");
    let exponent = decimals.split_once('e').map_or("0", |(_, exponent)| exponent);
    format!("1e{exponent}").parse().unwrap_or(value)
}

/// Returns a step of 1, 2 or 5 times a power of ten, such that at most `ticks` steps reach `last`.
pub(crate) fn decimal_step(last: u64, ticks: u64) -> u64 {
    let least = last.div_ceil(ticks).max(1);
    let power = 10_u64.pow(least.ilog10());
    [1, 2, 5].map(|digit| digit * power).into_iter().find(|&step| step >= least).unwrap_or(10 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_ticks_are_few_and_round() {
        assert_eq!(ticks(180.0).last(), Some(180.0));
        assert_eq!(ticks(180.0).nth(1), Some(20.0));
        assert_eq!(ticks(0.7).last(), Some(0.7));
        for end in [0.013, 1.0, 7.7, 50.0, 400.0, 123_456.0] {
            assert!((4..=11).contains(&ticks(end).count()), "{end}");
        }
    }

    #[test]
    fn axis_tick_labels_are_rounded() {
        let axis = Axis::of("caches", 0.8);
        assert_eq!(axis.ticks[3], (0.3, "0.3".to_owned()));
        assert_eq!(Axis::shares("").ticks[1].1, "20%");
    }
}
