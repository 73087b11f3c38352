//! Slowdowns of backends over time, shown below their effect.

use super::super::live::{Live, LiveBackend};

/// Slowdowns of a run, as observed from picture to picture.
#[derive(Debug, Default)]
pub(super) struct Slowdowns {
    run: (usize, usize),
    seen_s: f64,
    periods: Vec<Period>,
}

/// A period during which a backend was slowed down.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Period {
    pub(super) name: String,
    /// Start in seconds since the run began.
    pub(super) from_s: f64,
    pub(super) until_s: f64,
}

impl Slowdowns {
    /// Records the current slowdowns. A new run, or time that moves backwards, clears the record.
    pub(super) fn note(&mut self, live: &Live) {
        let now_s = live.elapsed.as_secs_f64();
        if self.run != live.run || now_s < self.seen_s {
            *self = Self { run: live.run, ..Self::default() };
        }
        for backend in live.backends.iter().filter(|backend| is_slowed(backend)) {
            self.extend(&backend.name, now_s);
        }
        self.seen_s = now_s;
    }

    /// The recorded periods in the order of their starts; at most 64.
    pub(super) fn periods(&self) -> &[Period] {
        &self.periods
    }

    fn extend(&mut self, name: &str, now_s: f64) {
        let seen_s = self.seen_s;
        let open = |period: &&mut Period| period.until_s == seen_s && period.name == name;
        if let Some(period) = self.periods.iter_mut().find(open) {
            period.until_s = now_s;
            return;
        }
        if self.periods.len() == PERIODS_MAX {
            self.periods.remove(0);
        }
        self.periods.push(Period { name: name.to_owned(), from_s: now_s, until_s: now_s });
    }
}

/// Returns true when the backend is noticeably slowed down.
pub(super) fn is_slowed(backend: &LiveBackend) -> bool {
    backend.limit < 0.995
}

/// Most periods that can be distinguished in the width of a terminal.
const PERIODS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn live(run: usize, second: u64, limits: &[f64]) -> Live {
        let backend = |(at, limit): (usize, &f64)| LiveBackend {
            name: format!("b{:02}", at + 1),
            limit: *limit,
            ..LiveBackend::default()
        };
        let backends = limits.iter().enumerate().map(backend).collect();
        Live { run: (run, 2), elapsed: Duration::from_secs(second), backends, ..Live::default() }
    }

    fn noted(pictures: &[Live]) -> Vec<(String, f64, f64)> {
        let mut slowdowns = Slowdowns::default();
        for picture in pictures {
            slowdowns.note(picture);
        }
        slowdowns.periods().iter().map(|p| (p.name.clone(), p.from_s, p.until_s)).collect()
    }

    #[test]
    fn slowdown_lasts_while_its_backend_stays_slow() {
        let pictures = [
            live(1, 1, &[0.9, 1.0]),
            live(1, 2, &[0.4, 0.5]),
            live(1, 3, &[1.0, 0.5]),
            live(1, 4, &[0.9, 1.0]),
        ];
        let b = |name: &str, from, until| (name.to_owned(), from, until);
        assert_eq!(noted(&pictures), [b("b01", 1.0, 2.0), b("b02", 2.0, 3.0), b("b01", 4.0, 4.0)]);
    }

    #[test]
    fn new_run_clears_the_recorded_slowdowns() {
        assert_eq!(noted(&[live(1, 5, &[0.4]), live(2, 6, &[1.0])]), []);
        assert_eq!(noted(&[live(1, 5, &[0.4]), live(1, 0, &[1.0])]), []);
    }

    #[test]
    fn only_a_limit_below_one_is_a_slowdown() {
        assert_eq!(noted(&[live(1, 5, &[f64::NAN, 0.999, f64::INFINITY])]), []);
    }

    #[test]
    fn latest_slowdowns_are_kept_when_a_limit_flaps() {
        let pictures: Vec<Live> =
            (0..1_000).map(|second| live(1, second, &[if second % 2 == 0 { 0.5 } else { 1.0 }])).collect();
        let noted = noted(&pictures);
        assert_eq!(noted.len(), PERIODS_MAX);
        assert_eq!(noted.last().map(|period| period.1), Some(998.0));
    }
}
