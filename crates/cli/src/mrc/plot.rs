//! The miss ratio curve as a self-contained SVG file.

use super::Report;
use crate::chart::{Axis, COLOURS, ChartLine, Lines, Pen, decimal_step};

/// Height of the chart's frame, in pixels.
const HEIGHT: f64 = 340.0;

/// Draws the miss ratio curve of the trace called `name`: miss ratio over size, both from 0.
pub(super) fn svg(report: &Report, name: &str) -> String {
    let curve = report.bytes.iter().zip(&report.miss_ratio);
    let lines = Lines {
        title: &format!("Miss ratio curve of {name}"),
        note: &subtitle(report),
        x: sizes(report),
        y: ratios(),
        height: HEIGHT,
        lines: vec![ChartLine {
            name: String::new(),
            pen: Pen { width: 2.0, ..Pen::solid(COLOURS[0]) },
            points: curve.map(|(&bytes, &ratio)| (bytes as f64, Some(ratio))).collect(),
        }],
        mark: None,
    };
    lines.svg()
}

fn subtitle(report: &Report) -> String {
    let of = format!("{} gets of {} objects, LRU", grouped(report.accesses), grouped(report.unique));
    if report.sample < 1.0 {
        format!("{of}, {:.3}% of the objects sampled", report.sample * 100.0)
    } else {
        of
    }
}

fn ratios() -> Axis {
    let tick = |tenths: u32| (f64::from(tenths) / 10.0, format!("{:.1}", f64::from(tenths) / 10.0));
    Axis { name: "miss ratio".to_owned(), end: 1.0, ticks: (0..=10).step_by(2).map(tick).collect() }
}

fn sizes(report: &Report) -> Axis {
    let last = (*report.bytes.last().expect("the first size is 0")).max(1);
    let (step, unit) =
        if report.weigh == "one" { (decimal_step(last, TICKS), Unit::Objects) } else { byte_step(last) };
    let label = |size: u64| match unit {
        Unit::Objects => grouped(size),
        Unit::Bytes(_, scale) => short(size as f64 / scale as f64),
    };
    let name = match unit {
        Unit::Objects => "cache size (objects)".to_owned(),
        Unit::Bytes(name, _) => format!("cache size ({name})"),
    };
    let ticks = (0..).map(|i| i * step).take_while(|&size| size <= last);
    Axis { name, end: last as f64, ticks: ticks.map(|size| (size as f64, label(size))).collect() }
}

/// The unit of the size axis: objects or a number of bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Unit {
    Objects,
    /// Name of the unit, and its number of bytes.
    Bytes(&'static str, u64),
}

/// Approximate number of ticks on the size axis.
const TICKS: u64 = 8;

/// Returns the largest unit that is at most `last`, and a power of two as the step for 4 to 8
/// ticks.
fn byte_step(last: u64) -> (u64, Unit) {
    let (name, scale) = *UNITS.iter().find(|(_, scale)| last >= *scale).unwrap_or(&("bytes", 1));
    (last.div_ceil(TICKS).next_power_of_two(), Unit::Bytes(name, scale))
}

const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// Formats bytes for people: `12.5 MiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    match UNITS.iter().find(|(_, scale)| bytes >= *scale) {
        Some((name, scale)) => format!("{:.1} {name}", bytes as f64 / *scale as f64),
        None => format!("{bytes} B"),
    }
}

/// Formats a number without trailing zeros; four decimals suffice for the powers of two used here.
fn short(number: f64) -> String {
    let text = format!("{number:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn grouped(number: u64) -> String {
    indicatif::HumanCount(number).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(last: u64, weigh: &'static str) -> Report {
        Report {
            bytes: vec![0, last / 4, last / 2, last],
            miss_ratio: vec![1.0, 1.0, 0.4, 0.05],
            accesses: 1_234_567,
            unique: 8_901,
            writes: 0,
            sample: 0.01,
            weigh,
        }
    }

    #[test]
    fn miss_ratio_curve_over_bytes_matches_its_snapshot() {
        let svg = svg(&report(5 << 20, "charge"), "a<b>&c.trace");
        crate::chart::assert_well_formed(&svg);
        insta::assert_snapshot!(svg);
    }

    #[test]
    fn miss_ratio_curve_over_objects_matches_its_snapshot() {
        insta::assert_snapshot!(svg(&report(8_900, "one"), "orm-busy"));
    }

    #[test]
    fn ticks_of_the_size_axis_are_few_at_every_size() {
        for last in (0..63).flat_map(|bit| [1_u64 << bit, (1 << bit) | (1 << bit >> 1), (2 << bit) - 1]) {
            let (step, unit) = byte_step(last);
            assert!((1..=9).contains(&(last / step)), "{last}: {step} {unit:?}");
            assert!(
                (1..=9).contains(&(last / decimal_step(last, TICKS))),
                "{last}: {}",
                decimal_step(last, TICKS)
            );
        }
    }

    #[test]
    fn sizes_in_bytes_have_short_labels() {
        assert_eq!([bytes(7), bytes(1 << 10), bytes(25 << 19)], ["7 B", "1.0 KiB", "12.5 MiB"]);
        assert_eq!([short(0.0), short(0.5), short(100.0)], ["0", "0.5", "100"]);
    }
}
