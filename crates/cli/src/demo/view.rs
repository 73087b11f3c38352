//! Display of a run of the demo.

use std::time::Duration;

use super::live::Live;
use super::screen::Screen;
use crate::out;

/// Interval between updates of the screen.
const DRAW_EVERY: Duration = Duration::from_millis(200);
/// Interval between log lines when there is no screen.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// The display of a run: a screen, or a log line from time to time.
pub(super) enum View {
    Screen(Box<Screen>),
    Log,
}

impl View {
    pub(super) fn new(screen: bool) -> std::io::Result<Self> {
        Ok(if screen { Self::Screen(Box::new(Screen::start()?)) } else { Self::Log })
    }

    /// Displays the run and returns the time until the next update.
    pub(super) fn show(&mut self, live: &Live) -> std::io::Result<Duration> {
        match self {
            Self::Screen(screen) => {
                screen.draw(live)?;
                Ok(DRAW_EVERY)
            }
            Self::Log => {
                out::say(live.line());
                Ok(LOG_EVERY)
            }
        }
    }

    pub(super) fn quit_asked(&mut self) -> bool {
        match self {
            Self::Screen(screen) => screen.quit_asked().unwrap_or(false),
            Self::Log => false,
        }
    }
}
