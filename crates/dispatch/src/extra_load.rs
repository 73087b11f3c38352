//! The recent cost of copies.

use std::time::Duration;

use sherwood_model::Instant;

/// Time that replicas spent on needed and on needless attempts, over the present minute and the one
/// before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExtraLoad {
    minute: u64,
    present: Spent,
    before: Spent,
}

#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    needed: Duration,
    needless: Duration,
}

impl ExtraLoad {
    /// Notes an attempt that has ended.
    pub(crate) fn note(&mut self, now: Instant, took: Duration, is_needed: bool) {
        self.roll(now);
        let Spent { needed, needless } = &mut self.present;
        *(if is_needed { needed } else { needless }) += took;
    }

    /// Forgets what is older than the minute before that of `now`.
    pub(crate) fn roll(&mut self, now: Instant) {
        let minute = now.as_nanos() / Duration::from_secs(60).as_nanos() as u64;
        if minute != self.minute {
            let is_next = minute == self.minute + 1;
            self.before = if is_next { self.present } else { Spent::default() };
            (self.minute, self.present) = (minute, Spent::default());
        }
    }

    /// Returns the needless time as a share of the needed one, 0 if there was none.
    pub(crate) fn ratio(&self) -> f64 {
        let needed = (self.before.needed + self.present.needed).as_secs_f64();
        let needless = (self.before.needless + self.present.needless).as_secs_f64();
        if needed > 0.0 { needless / needed } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extra_load_is_the_share_of_needless_time_within_two_minutes() {
        let mut load = ExtraLoad::default();
        let (second, at) = (Duration::from_secs(1), Instant::from_secs);
        assert_eq!(load.ratio(), 0.0);
        load.note(at(10), 4 * second, true);
        load.note(at(20), second, false);
        assert_eq!(load.ratio(), 0.25);
        load.note(at(70), 4 * second, true);
        assert_eq!(load.ratio(), 0.125);
        load.note(at(130), second, true);
        assert_eq!(load.ratio(), 0.0, "the first minute is over");
        load.note(at(900), second, false);
        assert_eq!(load.ratio(), 0.0, "nothing was needed");
    }
}
