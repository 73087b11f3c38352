//! A curve as a picture: one SVG file that needs nothing beside it.

use std::fmt::Write;

use super::Report;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 460.0;
/// Room for labels around the plot.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = 60.0;

/// The curve of the trace called `name`: miss ratio over size, both from 0.
pub(super) fn svg(report: &Report, name: &str) -> String {
    let last = (*report.bytes.last().expect("the first size is 0")).max(1);
    let (step, unit) =
        if report.weigh == "one" { (decimal_step(last), Unit::Objects) } else { byte_step(last) };
    let mut svg = String::new();
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
         height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n\
         <title>Miss ratio curve of {name}</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"26\" font-size=\"16\">Miss ratio curve of {name}</text>\n\
         <text x=\"{LEFT}\" y=\"46\" fill=\"#666\">{subtitle}</text>\n",
        name = escaped(name),
        subtitle = subtitle(report),
    );
    axes(&mut svg, last, step, unit);
    let _ = writeln!(
        svg,
        "<path d=\"{}\" fill=\"none\" stroke=\"#1a6faf\" stroke-width=\"2\"/>\n</svg>",
        line(report, last)
    );
    svg
}

fn subtitle(report: &Report) -> String {
    let of = format!("{} gets of {} objects, LRU", grouped(report.accesses), grouped(report.unique));
    if report.sample < 1.0 {
        format!("{of}, {:.3}% of the objects sampled", report.sample * 100.0)
    } else {
        of
    }
}

/// What the axis of sizes counts.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Unit {
    Objects,
    /// Name and bytes.
    Bytes(&'static str, u64),
}

fn axes(svg: &mut String, last: u64, step: u64, unit: Unit) {
    let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    for tenths in (0..=10).step_by(2) {
        let at = y(f64::from(tenths) / 10.0);
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{:.1}</text>",
            LEFT - 8.0,
            at + 4.0,
            f64::from(tenths) / 10.0
        );
    }
    for size in (0..).map(|i| i * step).take_while(|&size| size <= last) {
        let at = x(size, last);
        let label = match unit {
            Unit::Objects => grouped(size),
            Unit::Bytes(_, scale) => short(size as f64 / scale as f64),
        };
        let _ = writeln!(
            svg,
            "<path d=\"M{at:.1} {bottom}v5\" stroke=\"#222\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            bottom + 19.0
        );
    }
    let name = match unit {
        Unit::Objects => "cache size (objects)".to_owned(),
        Unit::Bytes(name, _) => format!("cache size ({name})"),
    };
    let (middle_x, middle_y) = ((LEFT + right) / 2.0, (TOP + bottom) / 2.0);
    let _ = writeln!(
        svg,
        "<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"#222\"/>\n\
         <text x=\"{middle_x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}</text>\n\
         <text transform=\"translate(22 {middle_y:.1}) rotate(-90)\" text-anchor=\"middle\">miss ratio</text>",
        HEIGHT - 16.0,
    );
}

/// The curve as a path, without the points that cannot be told from the one before.
fn line(report: &Report, last: u64) -> String {
    let mut path = String::new();
    let mut before = String::new();
    for (&bytes, &ratio) in report.bytes.iter().zip(&report.miss_ratio) {
        let point = format!("{:.1} {:.1}", x(bytes, last), y(ratio));
        if point != before {
            path += if path.is_empty() { "M" } else { "L" };
            path += &point;
            before = point;
        }
    }
    path
}

fn x(size: u64, last: u64) -> f64 {
    LEFT + size as f64 / last as f64 * (WIDTH - LEFT - RIGHT)
}

fn y(ratio: f64) -> f64 {
    HEIGHT - BOTTOM - ratio * (HEIGHT - TOP - BOTTOM)
}

/// Ticks along the axis of sizes, about.
const TICKS: u64 = 8;

/// The largest unit that `last` holds once, and a step of a power of two that makes 4 to 8 ticks.
fn byte_step(last: u64) -> (u64, Unit) {
    let (name, scale) = *UNITS.iter().find(|(_, scale)| last >= *scale).unwrap_or(&("bytes", 1));
    (last.div_ceil(TICKS).next_power_of_two(), Unit::Bytes(name, scale))
}

/// A step of 1, 2 or 5 times a power of ten.
fn decimal_step(last: u64) -> u64 {
    let least = last.div_ceil(TICKS).max(1);
    let power = 10_u64.pow(least.ilog10());
    [1, 2, 5].map(|digit| digit * power).into_iter().find(|&step| step >= least).unwrap_or(10 * power)
}

const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// Bytes for people: `12.5 MiB`.
pub(super) fn bytes(bytes: u64) -> String {
    match UNITS.iter().find(|(_, scale)| bytes >= *scale) {
        Some((name, scale)) => format!("{:.1} {name}", bytes as f64 / *scale as f64),
        None => format!("{bytes} B"),
    }
}

/// With as many decimals as a power of two needs here.
fn short(number: f64) -> String {
    let text = format!("{number:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn grouped(number: u64) -> String {
    indicatif::HumanCount(number).to_string()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
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
    fn a_picture_in_bytes() {
        insta::assert_snapshot!(svg(&report(5 << 20, "charge"), "a<b>&c.trace"));
    }

    #[test]
    fn a_picture_in_objects() {
        insta::assert_snapshot!(svg(&report(8_900, "one"), "orm-busy"));
    }

    #[test]
    fn ticks_are_few_and_round_whatever_the_size() {
        for last in (0..63).flat_map(|bit| [1_u64 << bit, (1 << bit) | (1 << bit >> 1), (2 << bit) - 1]) {
            let (step, unit) = byte_step(last);
            assert!((1..=9).contains(&(last / step)), "{last}: {step} {unit:?}");
            assert!((1..=9).contains(&(last / decimal_step(last))), "{last}: {}", decimal_step(last));
        }
    }

    #[test]
    fn sizes_are_for_people() {
        assert_eq!([bytes(7), bytes(1 << 10), bytes(25 << 19)], ["7 B", "1.0 KiB", "12.5 MiB"]);
        assert_eq!([short(0.0), short(0.5), short(100.0)], ["0", "0.5", "100"]);
    }
}
