//! Where values are on a picture, and which of them are written beside it.

/// An axis from 0 to `end`, with labels at some values.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub(crate) name: String,
    pub(crate) end: f64,
    /// Values from 0 to `end` and their labels.
    pub(crate) ticks: Vec<(f64, String)>,
}

/// Ticks on an axis, about.
const TICKS: f64 = 10.0;

impl Axis {
    /// An axis of numbers up to `end`, which is above 0, with ticks at round ones.
    pub(crate) fn of(name: impl Into<String>, end: f64) -> Self {
        let ticks = ticks(end).map(|value| (value, value.to_string())).collect();
        Self { name: name.into(), end, ticks }
    }

    /// An axis of shares, 0 to 1, written as percentages.
    pub(crate) fn shares(name: impl Into<String>) -> Self {
        let tick = |percent: u32| (f64::from(percent) / 100.0, format!("{percent}%"));
        Self { name: name.into(), end: 1.0, ticks: (0..=100).step_by(20).map(tick).collect() }
    }

    /// Where `value` is on the way from 0 to the end, at one of them if it is beyond.
    pub(super) fn share(&self, value: f64) -> f64 {
        (value / self.end).clamp(0.0, 1.0)
    }
}

/// Values along an axis from 0 to `end`, at steps of 1, 2 or 5 times a power of ten.
fn ticks(end: f64) -> impl Iterator<Item = f64> {
    let power = power_of_ten(end / TICKS);
    let step = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power).into_iter().find(|step| end / step <= TICKS);
    let step = step.unwrap_or(end);
    let count = (end / step + 1e-9).floor() as u32;
    // To the digits of the step, lest 0.30000000000000004 be written.
    (0..=count).map(move |i| (f64::from(i) * step * 1e6).round() / 1e6)
}

/// The largest power of ten that is not above `value`, which is above 0: read off its decimals, as
/// logarithms differ between machines.
fn power_of_ten(value: f64) -> f64 {
    let decimals = format!("{value:e}");
    let exponent = decimals.split_once('e').map_or("0", |(_, exponent)| exponent);
    format!("1e{exponent}").parse().unwrap_or(value)
}

/// A step of 1, 2 or 5 times a power of ten, of which at most `ticks` lead to `last`.
pub(crate) fn decimal_step(last: u64, ticks: u64) -> u64 {
    let least = last.div_ceil(ticks).max(1);
    let power = 10_u64.pow(least.ilog10());
    [1, 2, 5].map(|digit| digit * power).into_iter().find(|&step| step >= least).unwrap_or(10 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_few_and_round() {
        assert_eq!(ticks(180.0).last(), Some(180.0));
        assert_eq!(ticks(180.0).nth(1), Some(20.0));
        assert_eq!(ticks(0.7).last(), Some(0.7));
        for end in [0.013, 1.0, 7.7, 50.0, 400.0, 123_456.0] {
            assert!((4..=11).contains(&ticks(end).count()), "{end}");
        }
    }

    #[test]
    fn a_tick_is_written_as_people_would() {
        let axis = Axis::of("caches", 0.8);
        assert_eq!(axis.ticks[3], (0.3, "0.3".to_owned()));
        assert_eq!(Axis::shares("").ticks[1].1, "20%");
    }
}
