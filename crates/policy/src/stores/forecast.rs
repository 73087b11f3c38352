//! Forecast of a store's rate: that of the day, and that of the night.

/// Rates of accesses by day and at night, in accesses a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// The rate by day.
    pub day: f64,
    /// The rate at night.
    pub night: f64,
}

impl Forecast {
    /// Returns the rate that follows the present one: that of the night by day, and the reverse. It
    /// is day or night as the present rate is nearer to that of the day or of the night.
    ///
    /// ```
    /// use sherwood_policy::stores::Forecast;
    /// let forecast = Forecast { day: 4_000.0, night: 1_000.0 };
    /// assert_eq!([900.0, 3_000.0].map(|rate| forecast.next(rate)), [4_000.0, 1_000.0]);
    /// ```
    #[must_use]
    pub fn next(&self, rate_per_s: f64) -> f64 {
        let is_day = (rate_per_s - self.day).abs() <= (rate_per_s - self.night).abs();
        if is_day { self.night } else { self.day }
    }
}
