//! Observations over time, as CSV.

use std::borrow::Cow;
use std::fmt::Write;

use sherwood_sim::{BackendSample, Sample};

/// Formats a line for each observation: columns of the requests, then those of each backend.
/// Missing values are empty.
pub(in crate::sim) fn csv(names: &[&str], samples: &[Sample]) -> String {
    let mut text = "minute,p50_ms,p90_ms,p99_ms,violated".to_owned();
    for name in names {
        for column in COLUMNS {
            text.push(',');
            text += &field(&format!("{name}_{column}"));
        }
    }
    text.push('\n');
    for sample in samples {
        line(&mut text, sample);
    }
    text
}

/// Columns of each backend, in the order of [`line()`].
const COLUMNS: [&str; 7] =
    ["limit", "waiting", "query_p99_ms", "rbc_ratio", "hit_ratio", "allocation_bytes", "used_bytes"];

/// Formats a field according to RFC 4180: in quotes when it contains a comma or a quote. Names of
/// backends contain no line breaks.
fn field(text: &str) -> Cow<'_, str> {
    if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")).into() } else { text.into() }
}

fn line(text: &mut String, sample: &Sample) {
    let ms = |value: Option<f64>| value.map_or(String::new(), |ms| format!("{ms:.3}"));
    let Sample { minute, p50_ms, p90_ms, p99_ms, violated, backends } = sample;
    let _ =
        write!(text, "{minute:.4},{},{},{},{}", ms(*p50_ms), ms(*p90_ms), ms(*p99_ms), u8::from(*violated));
    for backend in backends {
        let BackendSample {
            limit,
            waiting,
            query_p99_ms,
            blocking_ratio,
            hit_ratio,
            allocation_bytes,
            used_bytes,
        } = backend;
        let query_p99 = ms(*query_p99_ms);
        let hit_ratio = hit_ratio.map_or(String::new(), |ratio| format!("{ratio:.4}"));
        let _ = write!(
            text,
            ",{limit:.4},{waiting},{query_p99},{blocking_ratio:.4},{hit_ratio},{allocation_bytes:.0},{used_bytes:.0}"
        );
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_csv_has_a_field_for_each_column() {
        let backend = BackendSample {
            limit: 0.5,
            waiting: 3,
            query_p99_ms: Some(2.0),
            blocking_ratio: 0.25,
            hit_ratio: None,
            allocation_bytes: 10.0,
            used_bytes: 9.0,
        };
        let sample = Sample {
            minute: 0.25,
            p50_ms: Some(1.5),
            p90_ms: None,
            p99_ms: None,
            violated: true,
            backends: vec![backend],
        };
        let text = csv(&["b01"], &[sample]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[1], "0.2500,1.500,,,1,0.5000,3,2.000,0.2500,,10,9");
        assert_eq!(lines[0].split(',').count(), lines[1].split(',').count());
    }

    #[test]
    fn backend_names_with_commas_and_quotes_are_quoted_in_the_csv() {
        let text = csv(&["a,b", "the\"c\"", "d"], &[]);
        assert!(
            text.starts_with("minute,p50_ms,p90_ms,p99_ms,violated,\"a,b_limit\",\"a,b_waiting\","),
            "{text}"
        );
        assert!(text.contains(",\"the\"\"c\"\"_used_bytes\",d_limit,d_waiting,"), "{text}");
    }
}
