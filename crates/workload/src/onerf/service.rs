//! Service times of calls: a parametric law, or measured times.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::replicas::Replicas;
use super::validate::{Verdict, number, require};
use crate::draw::{midpoint_from_bits, normal_from_bits};
use crate::unique;

/// Time for which one backend call occupies one worker.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Document")]
pub struct ServiceLaw {
    /// Milliseconds per call, independent of its objects; 0 with measured times.
    pub base_ms: f64,
    /// Milliseconds per object; with measured times, per object beyond the first.
    pub per_item_ms: f64,
    /// Coefficient of variation of the log-normal factor with mean 1; 0 with measured times.
    pub cv: f64,
    /// Measured times, in place of the law.
    pub measured: Option<Measured>,
    /// Workers of each replica by profile; they serve one first-in-first-out queue.
    pub workers: BTreeMap<String, u32>,
    /// Replicas, each with its own workers and queue.
    pub replicas: Replicas,
}

/// Measured times of calls. Draws use the inverse of their distribution function, which is linear
/// between the given points.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    form: Form,
    /// The points of the distribution as given in the document.
    points: Vec<(f64, f64)>,
    /// (Share of the calls, milliseconds that they take at most); both ascending, the last share 1.
    cumulative: Vec<(f64, f64)>,
}

/// Notations in which a document gives measured times of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Pairs `(upper bound in ms, calls above the bound before and up to this one)`.
    Histogram,
    /// Pairs `(upper bound in ms, calls up to it)`, as Prometheus exposes histograms.
    Cumulative,
    /// Pairs `(share of the calls, ms that they take at most)`.
    Quantiles,
}

/// Largest number of points of a measured distribution; a histogram of three significant digits
/// over nine decades has fewer.
const POINTS_MAX: usize = 100_000;

/// The service law as written in the document: a law, or one notation of measured times.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    base_ms: Option<f64>,
    per_item_ms: Option<f64>,
    cv: Option<f64>,
    histogram_ms: Option<Vec<(f64, f64)>>,
    cumulative_ms: Option<Vec<(f64, f64)>>,
    quantiles_ms: Option<Vec<(f64, f64)>>,
    #[serde(deserialize_with = "unique::map")]
    workers: BTreeMap<String, u32>,
    #[serde(default)]
    replicas: Replicas,
}

impl TryFrom<Document> for ServiceLaw {
    type Error = &'static str;

    fn try_from(document: Document) -> Result<Self, Self::Error> {
        let Document {
            base_ms,
            per_item_ms,
            cv,
            histogram_ms,
            cumulative_ms,
            quantiles_ms,
            workers,
            replicas,
        } = document;
        let law = match (base_ms, per_item_ms, cv, histogram_ms, cumulative_ms, quantiles_ms) {
            (Some(base_ms), Some(per_item_ms), Some(cv), None, None, None) => {
                Ok(Self { base_ms, per_item_ms, cv, measured: None, workers, replicas: Replicas::default() })
            }
            (None, per_item_ms, None, Some(points), None, None) => {
                Ok(Self::measured(Form::Histogram, points, per_item_ms, workers))
            }
            (None, per_item_ms, None, None, Some(points), None) => {
                Ok(Self::measured(Form::Cumulative, points, per_item_ms, workers))
            }
            (None, per_item_ms, None, None, None, Some(points)) => {
                Ok(Self::measured(Form::Quantiles, points, per_item_ms, workers))
            }
            _ => Err("`service` takes either `base_ms`, `per_item_ms` and `cv`, or one of `histogram_ms`, \
                 `cumulative_ms` and `quantiles_ms`, with `per_item_ms` or without"),
        };
        law.map(|law| Self { replicas, ..law })
    }
}

impl ServiceLaw {
    fn measured(
        form: Form,
        points: Vec<(f64, f64)>,
        per_item_ms: Option<f64>,
        workers: BTreeMap<String, u32>,
    ) -> Self {
        let measured = Some(Measured::new(form, points));
        Self {
            base_ms: 0.0,
            per_item_ms: per_item_ms.unwrap_or(0.0),
            cv: 0.0,
            measured,
            workers,
            replicas: Replicas::default(),
        }
    }

    /// Milliseconds of a call for `items` objects without a limit, determined by the 64 random bits
    /// `draw`.
    pub(super) fn ms(&self, items: u32, draw: u64) -> f64 {
        if let Some(measured) = &self.measured {
            let further = f64::from(items.saturating_sub(1));
            return measured.quantile(midpoint_from_bits(draw)) + self.per_item_ms * further;
        }
        let variance = libm::log(1.0 + self.cv * self.cv);
        let factor = libm::exp(libm::sqrt(variance) * normal_from_bits(draw) - variance / 2.0);
        (self.base_ms + self.per_item_ms * f64::from(items)) * factor
    }

    /// Checks everything except workers and replicas, which depend on the profile.
    pub(super) fn validate(&self, at: &str) -> Verdict {
        number(&format!("{at}.base_ms"), self.base_ms, 0.0, 3.6e6)?;
        number(&format!("{at}.per_item_ms"), self.per_item_ms, 0.0, 3.6e6)?;
        number(&format!("{at}.cv"), self.cv, 0.0, 100.0)?;
        self.measured.as_ref().map_or(Ok(()), |measured| measured.validate(at))
    }
}

impl Measured {
    fn new(form: Form, points: Vec<(f64, f64)>) -> Self {
        let cumulative = match form {
            Form::Histogram => {
                let mut sum = 0.0;
                let summed = points.iter().map(|&(ms, calls)| {
                    sum += calls;
                    (sum, ms)
                });
                summed.collect()
            }
            Form::Cumulative => points.iter().map(|&(ms, calls)| (calls, ms)).collect(),
            Form::Quantiles => points.clone(),
        };
        Self { form, points, cumulative: shares(cumulative) }
    }

    /// The time that a share `u` of the calls takes at most, `u` in (0, 1). O(log points).
    fn quantile(&self, u: f64) -> f64 {
        let after = self.cumulative.partition_point(|&(share, _)| share < u).min(self.cumulative.len() - 1);
        let (share, ms) = self.cumulative[after];
        let (from, from_ms) = if after == 0 { (0.0, 0.0) } else { self.cumulative[after - 1] };
        // Only the first point may have share 0; the share of a later one that is found here
        // exceeds the previous one's.
        if share > from { from_ms + (ms - from_ms) * ((u - from) / (share - from)) } else { ms }
    }

    fn validate(&self, at: &str) -> Verdict {
        let (field, bound, weight) = match self.form {
            Form::Histogram => ("histogram_ms", 0, 1),
            Form::Cumulative => ("cumulative_ms", 0, 1),
            Form::Quantiles => ("quantiles_ms", 1, 0),
        };
        let at = format!("{at}.{field}");
        require(
            (1..=POINTS_MAX).contains(&self.points.len()),
            || at.clone(),
            format!("a list of {} pairs", self.points.len()),
            format!("a list of 1 to {POINTS_MAX} pairs"),
        )?;
        let (mut ms_before, mut weight_before) = (None, 0.0);
        for (index, &(first, second)) in self.points.iter().enumerate() {
            let (ms, count) = if bound == 0 { (first, second) } else { (second, first) };
            number(&format!("{at}[{index}][{bound}]"), ms, 0.0, 3.6e6)?;
            require(
                ms_before.is_none_or(|before| ms > before),
                || format!("{at}[{index}][{bound}]"),
                ms,
                format!("above {}, the time before it", ms_before.unwrap_or_default()),
            )?;
            let least = if self.form == Form::Histogram { 0.0 } else { weight_before };
            let most = if self.form == Form::Quantiles { 1.0 } else { 1e18 };
            number(&format!("{at}[{index}][{weight}]"), count, least, most)?;
            (ms_before, weight_before) = (Some(ms), count);
        }
        self.validate_end(&at)
    }

    /// Checks that there are calls, and that the last time is the largest of all.
    fn validate_end(&self, at: &str) -> Verdict {
        let last = self.points.len() - 1;
        match self.form {
            Form::Quantiles => require(
                self.points[last].0 == 1.0,
                || format!("{at}[{last}][0]"),
                self.points[last].0,
                "1, the share that the largest time is for",
            ),
            Form::Histogram | Form::Cumulative => require(
                self.points.iter().any(|&(_, calls)| calls > 0.0),
                || at.to_owned(),
                "without calls",
                "a list in which some count is above 0",
            ),
        }
    }
}

/// Converts counts up to each time into shares of the last count.
fn shares(mut cumulative: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let all = cumulative.last().map_or(1.0, |&(calls, _)| calls);
    for (calls, _) in &mut cumulative {
        *calls /= all;
    }
    cumulative
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::rng_from_seed;

    fn law(fields: &str) -> ServiceLaw {
        serde_json::from_str(&format!(r#"{{{fields},"workers":{{"p":1}}}}"#)).expect("a law")
    }

    fn draws(law: &ServiceLaw, items: u32) -> Vec<f64> {
        let mut rng = rng_from_seed(1);
        let mut ms: Vec<f64> =
            (0..100_000).map(|_| law.ms(items, rand_core::Rng::next_u64(&mut rng))).collect();
        ms.sort_by(f64::total_cmp);
        ms
    }

    #[test]
    fn service_time_draws_follow_the_histogram_buckets_and_are_uniform_within_each() {
        let drawn = draws(&law(r#""histogram_ms":[[1,10],[2,0],[4,30],[10,60]]"#), 1);
        let at_most = |ms: f64| drawn.partition_point(|&drawn| drawn <= ms) as f64 / drawn.len() as f64;
        for (ms, share) in [(0.5, 0.05), (1.0, 0.1), (2.0, 0.1), (3.0, 0.25), (4.0, 0.4), (7.0, 0.7)] {
            assert!((at_most(ms) - share).abs() < 0.006, "{ms}: {}", at_most(ms));
        }
        assert!(drawn[0] > 0.0 && drawn[drawn.len() - 1] <= 10.0);
    }

    #[test]
    fn three_notations_of_one_service_time_distribution_give_equal_draws() {
        let histogram = law(r#""histogram_ms":[[1,10],[4,30],[10,60]]"#);
        let cumulative = law(r#""cumulative_ms":[[1,10],[4,40],[10,100]]"#);
        let quantiles = law(r#""quantiles_ms":[[0.1,1],[0.4,4],[1,10]]"#);
        for draw in (0..u64::MAX).step_by(1 << 58) {
            let ms = histogram.ms(1, draw);
            assert!((cumulative.ms(1, draw) - ms).abs() < 1e-9 && (quantiles.ms(1, draw) - ms).abs() < 1e-9);
        }
    }

    #[test]
    fn service_time_adds_the_minimum_and_the_time_of_further_objects() {
        let law = law(r#""quantiles_ms":[[0,5],[1,6]],"per_item_ms":2"#);
        let (one, four) = (draws(&law, 1), draws(&law, 4));
        assert!(one[0] >= 5.0 && one[one.len() - 1] <= 6.0);
        assert!((four[0] - one[0] - 6.0).abs() < 1e-9);
        let always = self::law(r#""histogram_ms":[[0,3]]"#);
        assert_eq!(always.ms(1, 7), 0.0);
    }

    #[test]
    fn invalid_service_time_distribution_is_refused_with_its_place() {
        let cases = [
            (
                r#""histogram_ms":[]"#,
                "s.histogram_ms is a list of 0 pairs; it must be a list of 1 to 100000 pairs",
            ),
            (
                r#""histogram_ms":[[1,0],[2,0]]"#,
                "s.histogram_ms is without calls; it must be a list in which some count is above 0",
            ),
            (
                r#""histogram_ms":[[4,1],[4,1]]"#,
                "s.histogram_ms[1][0] is 4; it must be above 4, the time before it",
            ),
            (r#""histogram_ms":[[4,-1]]"#, "s.histogram_ms[0][1] is -1; it must be 0 to 1000000000000000000"),
            (r#""histogram_ms":[[4e6,1]]"#, "s.histogram_ms[0][0] is 4000000; it must be 0 to 3600000"),
            (
                r#""cumulative_ms":[[1,5],[2,4]]"#,
                "s.cumulative_ms[1][1] is 4; it must be 5 to 1000000000000000000",
            ),
            (
                r#""quantiles_ms":[[0.5,1],[0.99,2]]"#,
                "s.quantiles_ms[1][0] is 0.99; it must be 1, the share that the largest time is for",
            ),
            (
                r#""quantiles_ms":[[0.5,2],[1,1]]"#,
                "s.quantiles_ms[1][1] is 1; it must be above 2, the time before it",
            ),
            (r#""quantiles_ms":[[1.5,2]]"#, "s.quantiles_ms[0][0] is 1.5; it must be 0 to 1"),
            (r#""quantiles_ms":[[1,2]],"per_item_ms":-1"#, "s.per_item_ms is -1; it must be 0 to 3600000"),
        ];
        for (fields, expected) in cases {
            let error = law(fields).validate("s").expect_err(fields).to_string();
            assert_eq!(error, format!("workload model: {expected}"));
        }
    }

    #[test]
    fn service_time_law_and_measured_times_are_mutually_exclusive() {
        for fields in [
            r#""cv":1"#,
            r#""base_ms":1,"quantiles_ms":[[1,2]]"#,
            r#""quantiles_ms":[[1,2]],"histogram_ms":[[1,2]]"#,
        ] {
            let text = format!(r#"{{{fields},"workers":{{}}}}"#);
            let error = serde_json::from_str::<ServiceLaw>(&text).expect_err(fields).to_string();
            assert!(
                error.starts_with("`service` takes either `base_ms`, `per_item_ms` and `cv`, or one of"),
                "{error}"
            );
        }
    }
}
