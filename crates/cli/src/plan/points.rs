//! Files of service times: cumulative shares, or counts.

use std::path::Path;

use sherwood_policy::slo::ServiceTimes;

use crate::exit::Failure;

/// Most bytes of a file.
const BYTES_MAX: u64 = 16 << 20;

/// Reads a file of lines `latency_ms,cumulative`: the share of accesses that take at most as long.
pub(super) fn cumulative(path: &Path) -> Result<ServiceTimes, Failure> {
    let points = read(path, "latency_ms,cumulative")?;
    ServiceTimes::new(points).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
}

/// Reads a file of lines `latency_ms,count`: the accesses that took at most as long, and longer
/// than those of the line before.
pub(super) fn counts(path: &Path) -> Result<ServiceTimes, Failure> {
    let points = read(path, "latency_ms,count")?;
    let refused = |what: String| Failure::usage(format!("{}: {what}", path.display()));
    if let Some((_, count)) = points.iter().find(|(_, count)| !(count.is_finite() && *count >= 0.0)) {
        return Err(refused(format!("a count is {count}; counts are 0 or more")));
    }
    let total: f64 = points.iter().map(|(_, count)| count).sum();
    if !points.is_empty() && total <= 0.0 {
        return Err(refused("all counts are 0; there is nothing to plan with".to_owned()));
    }
    let mut sum = 0.0;
    let share = |(ms, count): &(f64, f64)| {
        sum += count;
        (*ms, sum / total)
    };
    let mut shares: Vec<_> = points.iter().map(share).collect();
    if let Some((_, last)) = shares.last_mut() {
        // Rounding may have left it just below.
        *last = 1.0;
    }
    ServiceTimes::new(shares).map_err(|error| refused(error.to_string()))
}

/// Reads pairs of numbers after a heading, which may be missing.
fn read(path: &Path, heading: &str) -> Result<Vec<(f64, f64)>, Failure> {
    let refused = |what: String| Failure::usage(format!("{}: {what}", path.display()));
    let size = std::fs::metadata(path).map_err(|error| refused(error.to_string()))?.len();
    if size > BYTES_MAX {
        return Err(refused(format!("it has {size} bytes; at most {BYTES_MAX} are read")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let lines = lines.filter(|(number, line)| *number > 1 || line.trim() != heading);
    let point = |(number, line): (usize, &str)| {
        let fields = line.split_once(',');
        let pair = fields.and_then(|(a, b)| Some((a.trim().parse().ok()?, b.trim().parse().ok()?)));
        let shown: String = line.chars().take(60).collect();
        pair.ok_or_else(|| refused(format!("line {number} is {shown:?}, not two numbers `{heading}`")))
    };
    lines.map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn counts_become_cumulative_shares() {
        let times = counts(file("latency_ms,count\n1,30\n\n2,60\n5,10\n").path()).unwrap();
        assert_eq!(times, ServiceTimes::new(vec![(1.0, 0.3), (2.0, 0.9), (5.0, 1.0)]).unwrap());
    }

    #[test]
    fn error_names_file_line_and_content() {
        let broken = file("latency_ms,cumulative\n1,0.5\ntwo,1\n");
        let Err(Failure::Usage(message)) = cumulative(broken.path()) else { panic!("it was read") };
        assert!(message.contains("line 3 is \"two,1\", not two numbers"), "{message}");
        for (text, reason) in [("", "no points"), ("1,NaN", "a count is NaN"), ("1,0", "all counts are 0")] {
            let Err(Failure::Usage(message)) = counts(file(text).path()) else { panic!("{text} was read") };
            assert!(message.contains(reason), "{message}");
        }
    }
}
