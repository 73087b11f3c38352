//! Figures and texts on the screen: short forms that fit a given width.

use std::time::Duration;

use ratatui::text::Span;

/// Placeholder for a missing figure.
pub(crate) const NONE: &str = "–";

/// Formats milliseconds with their unit; seconds from 10 s on.
pub(crate) fn duration(duration: Duration) -> String {
    let milliseconds = duration.as_secs_f64() * 1e3;
    match milliseconds {
        ..9.95 => format!("{milliseconds:.1} ms"),
        ..9_999.5 => format!("{milliseconds:.0} ms"),
        _ => format!("{:.0} s", milliseconds / 1e3),
    }
}

/// Formats milliseconds without a unit, in four columns up to 10 s; from there on seconds with
/// their unit.
pub(crate) fn short_duration(duration: Duration) -> String {
    let milliseconds = duration.as_secs_f64() * 1e3;
    match milliseconds {
        ..9.95 => format!("{milliseconds:.1}"),
        ..9_999.5 => format!("{milliseconds:.0}"),
        _ => format!("{:.0}s", milliseconds / 1e3),
    }
}

/// Formats a remaining time.
pub(crate) fn left(left: Duration) -> String {
    match (left.as_secs() / 60, left.as_secs() % 60) {
        (0, seconds) => format!("{seconds} s left"),
        (minutes, seconds) => format!("{minutes} min {seconds:02} s left"),
    }
}

/// Formats MiB without the unit, in four columns up to 10 GiB.
pub(crate) fn mebibytes(bytes: u64) -> String {
    let mebibytes = bytes as f64 / f64::from(1 << 20);
    if mebibytes < 99.95 { format!("{mebibytes:.1}") } else { format!("{mebibytes:.0}") }
}

/// Formats a ratio as a whole number of percent.
pub(crate) fn percent(ratio: f64) -> String {
    if ratio.is_finite() { format!("{:.0}%", ratio.clamp(0.0, 1.0) * 100.0) } else { NONE.to_owned() }
}

/// Formats a count with thousands separators.
pub(crate) fn count(count: u64) -> String {
    let digits = count.to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| std::str::from_utf8(group).unwrap_or_default())
        .collect();
    groups.join(",")
}

/// Formats a count with its noun, with a plural `s`; zero is written as "no".
pub(crate) fn counted(number: u64, noun: &str) -> String {
    match number {
        0 => format!("no {noun}s"),
        1 => format!("1 {noun}"),
        _ => format!("{} {noun}s", count(number)),
    }
}

/// Escapes control characters, which could move the cursor.
pub(crate) fn escaped(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_debug().collect() } else { vec![c] }).collect()
}

/// Width of `text` in columns.
pub(crate) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Shortens `text` to at most `columns`; `…` replaces its end where it is cut.
pub(crate) fn shortened(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut used = 1;
    let fits = |c: &char| {
        used += width(c.encode_utf8(&mut [0; 4]));
        used <= columns
    };
    let kept: String = text.chars().take_while(fits).collect();
    if columns == 0 { String::new() } else { format!("{}…", kept.trim_end()) }
}

/// Wraps `text` between words to lines of at most `columns`; a longer word has a line of its own.
pub(crate) fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Draws a bar of `ratio` of `columns`, in eighths of a column; any value above 0 is visible.
pub(crate) fn bar(ratio: f64, columns: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let ratio = if ratio.is_nan() { 0.0 } else { ratio.clamp(0.0, 1.0) };
    let eighths = (ratio * columns as f64 * 8.0).round() as usize;
    let eighths = if ratio > 0.0 { eighths.max(1) } else { 0 };
    if columns == 0 { String::new() } else { "█".repeat(eighths / 8) + EIGHTHS[eighths % 8] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_on_the_screen_have_short_readable_forms() {
        assert_eq!(duration(Duration::from_micros(9_940)), "9.9 ms");
        assert_eq!(duration(Duration::from_micros(84_400)), "84 ms");
        assert_eq!(duration(Duration::from_secs(12)), "12 s");
        assert_eq!(left(Duration::from_secs(222)), "3 min 42 s left");
        assert_eq!(left(Duration::from_secs(9)), "9 s left");
        assert_eq!(mebibytes(17 << 20), "17.0");
        assert_eq!(mebibytes(327 << 20), "327");
        assert_eq!(percent(0.404), "40%");
        assert_eq!(percent(f64::NAN), NONE);
        assert_eq!([count(7), count(1_234), count(1_234_567)], ["7", "1,234", "1,234,567"]);
        assert_eq!([counted(0, "error"), counted(1, "error")], ["no errors", "1 error"]);
        assert_eq!(counted(1_200, "error"), "1,200 errors");
    }

    #[test]
    fn cut_text_ends_in_an_ellipsis_and_fits() {
        assert_eq!(shortened("moved 3 MiB", 11), "moved 3 MiB");
        assert_eq!(shortened("moved 3 MiB", 10), "moved 3 M…");
        assert_eq!(shortened("moved 3 MiB", 9), "moved 3…");
        assert_eq!(shortened("moved", 0), "");
        assert_eq!(shortened("倉庫係", 5), "倉庫…");
        assert_eq!(shortened("倉庫係", 4), "倉…");
    }

    #[test]
    fn wrapped_text_has_all_words_in_lines_that_fit() {
        assert_eq!(wrapped("moved 3.1 MiB: b05 given", 12), ["moved 3.1", "MiB: b05", "given"]);
        assert_eq!(wrapped("倉庫 係 unbreakable", 7), ["倉庫 係", "unbreakable"]);
        assert_eq!(wrapped("", 7), [""]);
    }

    #[test]
    fn bar_on_the_screen_fits_into_its_columns() {
        for (ratio, drawn) in
            [(0.0, ""), (1e-9, "▏"), (0.5, "██"), (0.55, "██▎"), (1.0, "████"), (9.0, "████"), (f64::NAN, "")]
        {
            assert_eq!(bar(ratio, 4), drawn, "{ratio}");
        }
        assert_eq!(bar(1.0, 0), "");
    }
}
