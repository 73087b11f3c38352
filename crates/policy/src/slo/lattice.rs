//! Distributions of times on a grid.

use super::ServiceTimes;

/// The shares of times on a grid from 0 to a bound, each spread evenly over a step around its grid
/// point. Times beyond the bound are what is missing to 1.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lattice {
    shares: Vec<f64>,
    step_ms: f64,
}

impl Lattice {
    /// Puts service times on a grid of `steps` steps up to `bound_ms`, so that their mean stays.
    pub(super) fn of(times: &ServiceTimes, bound_ms: f64, steps: usize) -> Self {
        let step_ms = bound_ms / steps as f64;
        let integrals = times.integrals(step_ms, steps + 1);
        let before = |step: usize| step.checked_sub(1).map_or(0.0, |before| integrals[before]);
        let share = |step: usize| (integrals[step + 1] - 2.0 * integrals[step] + before(step)) / step_ms;
        Self { shares: (0..=steps).map(|step| share(step).max(0.0)).collect(), step_ms }
    }

    /// Returns the distribution of the waiting time of an M/G/1 queue, first come first served, in
    /// front of a server with these service times, which is busy for `utilisation` (below 1) of the
    /// time: Pollaczek and Khinchine's, whose mean is `λ E[S²] / (2 (1 - ρ))`. Quadratic in steps.
    ///
    /// A wait is the sum of a geometric number of residual services, so that
    /// `W(t) = (1 - ρ) + ρ ∫ W(t - u) (1 - S(u)) / E[S] du`.
    pub(super) fn waiting(times: &ServiceTimes, utilisation: f64, bound_ms: f64, steps: usize) -> Self {
        let (step_ms, mean_ms) = (bound_ms / steps as f64, times.mean_ms());
        let integrals = times.integrals(step_ms / 2.0, 2 * steps + 1);
        // The share of residual services in the step around each grid point.
        let residual_until = |half: usize| half as f64 * step_ms / 2.0 - integrals[half];
        let residual = |step: usize| {
            let from = if step == 0 { 0.0 } else { residual_until(2 * step - 1) };
            (residual_until(2 * step + 1) - from) / mean_ms
        };
        let residuals: Vec<f64> = (0..=steps).map(residual).collect();
        let mut shares = Vec::with_capacity(steps + 1);
        // The integral at each step, of the shares so far: sums side by side are fast.
        let mut integrals = vec![0.0; steps + 1];
        for step in 0..=steps {
            let none = if step == 0 { 1.0 - utilisation } else { 0.0 };
            let share = (none + utilisation * integrals[step]) / (1.0 - utilisation * residuals[0]);
            shares.push(share);
            let later = integrals[step + 1..].iter_mut().zip(&residuals[1..]);
            later.for_each(|(integral, residual)| *integral += residual * share);
        }
        Self { shares, step_ms }
    }

    /// Returns the distribution of the sum of two independent times. Quadratic in steps.
    pub(super) fn plus(&self, other: &Self) -> Self {
        let mut shares = vec![0.0; self.shares.len()];
        for (step, share) in self.shares.iter().enumerate().filter(|(_, share)| **share > 0.0) {
            let sums = shares[step..].iter_mut().zip(&other.shares);
            sums.for_each(|(sum, of)| *sum += share * of);
        }
        Self { shares, step_ms: self.step_ms }
    }

    /// Returns the distribution of what is left of a time after `ms`.
    pub(super) fn less(&self, ms: f64) -> Self {
        let at = ms / self.step_ms;
        let (whole, part) = (at.min(self.shares.len() as f64) as usize, at - libm::floor(at));
        let of = |step: usize| self.shares.get(step).copied().unwrap_or(0.0);
        // A point between two grid points is divided among them.
        let mut shares: Vec<f64> = (0..self.shares.len())
            .map(|step| of(step + whole) * (1.0 - part) + of(step + whole + 1) * part)
            .collect();
        let within: f64 = self.shares.iter().take(whole).sum();
        shares[0] = within + of(whole) + of(whole + 1) * part;
        Self { shares, step_ms: self.step_ms }
    }

    /// Returns the distribution whose times beyond the grid are at its end.
    pub(super) fn whole(mut self) -> Self {
        let missing = 1.0 - self.shares.iter().sum::<f64>();
        if let Some(last) = self.shares.last_mut() {
            *last += missing.max(0.0);
        }
        self
    }

    pub(super) fn shares(&self) -> &[f64] {
        &self.shares
    }

    pub(super) fn step_ms(&self) -> f64 {
        self.step_ms
    }

    /// Returns the distribution of the sum of `count` (at least 1) such times.
    pub(super) fn times(&self, count: u32) -> Self {
        let (mut sum, mut power, mut left) = (None::<Self>, self.clone(), count);
        while left > 0 {
            if left % 2 == 1 {
                sum = Some(sum.map_or_else(|| power.clone(), |sum| sum.plus(&power)));
            }
            left /= 2;
            if left > 0 {
                power = power.plus(&power);
            }
        }
        sum.unwrap_or_else(|| self.clone())
    }

    /// Returns the distribution of a time whose share that is longer is, at the end of each step,
    /// this function of the step and the share of `self` that is longer.
    pub(super) fn map_longer(&self, longer: impl Fn(usize, f64) -> f64) -> Self {
        let (mut within, mut before) = (0.0, 0.0);
        let mut share = |(step, share): (usize, &f64)| {
            within += share;
            let until = 1.0 - longer(step, (1.0_f64 - within).max(0.0));
            let of_step = until - before;
            before = until;
            of_step
        };
        Self { shares: self.shares.iter().enumerate().map(&mut share).collect(), step_ms: self.step_ms }
    }

    /// The share of times of at most `ms`.
    pub(super) fn share_within(&self, ms: f64) -> f64 {
        // Each share is spread evenly over a step around its point, the first over half a step.
        let at = ms / self.step_ms + 0.5;
        let whole = at.max(0.0) as usize;
        let sum: f64 = self.shares.iter().take(whole).sum();
        let part = self.shares.get(whole).map_or(0.0, |share| share * (at - whole as f64).clamp(0.0, 1.0));
        sum + part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exponential service times of mean 1 ms, as a fine table.
    fn exponential() -> ServiceTimes {
        let point = |step: u32| (f64::from(step) / 50.0, 1.0 - libm::exp(-f64::from(step) / 50.0));
        let mut points: Vec<_> = (0..=1_000).map(point).collect();
        points.push((20.1, 1.0));
        ServiceTimes::new(points).unwrap()
    }

    #[track_caller]
    fn close(a: f64, b: f64, error: f64) {
        assert!((a - b).abs() < error, "{a} and {b}");
    }

    #[test]
    fn wait_for_a_server_with_exponential_services_is_that_of_the_m_m_1_queue() {
        let waiting = Lattice::waiting(&exponential(), 0.7, 10.0, 512);
        for ms in [0.5_f64, 1.0, 3.0, 8.0] {
            close(waiting.share_within(ms), 1.0 - 0.7 * libm::exp(-0.3 * ms), 1e-3);
        }
        // The response is exponential with the rate μ - λ.
        let response = waiting.plus(&Lattice::of(&exponential(), 10.0, 512));
        for ms in [1.0, 3.0, 8.0] {
            close(response.share_within(ms), 1.0 - libm::exp(-0.3 * ms), 1e-3);
        }
    }

    #[test]
    fn sum_of_exponential_times_has_the_erlang_distribution() {
        let sum = Lattice::of(&exponential(), 12.0, 512).times(5);
        let erlang = |t: f64| {
            let terms = [1.0, t, t * t / 2.0, t * t * t / 6.0, t * t * t * t / 24.0];
            1.0 - libm::exp(-t) * terms.iter().sum::<f64>()
        };
        for ms in [2.0, 5.0, 9.0] {
            close(sum.share_within(ms), erlang(ms), 1e-3);
        }
    }

    #[test]
    fn first_of_several_times_is_longer_if_all_are() {
        let times = Lattice::of(&exponential(), 5.0, 512);
        let first = times.map_longer(|_, longer| longer * longer * longer);
        for ms in [0.2, 1.0, 2.0] {
            close(first.share_within(ms), 1.0 - libm::exp(-3.0 * ms), 2e-3);
        }
    }
}
