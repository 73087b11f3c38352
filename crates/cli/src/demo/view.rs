//! Where a run is to be seen.

use std::time::Duration;

use super::live::Live;
use super::screen::Screen;
use crate::out;

/// How often the screen is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(200);
/// Without a screen, how often a line says how things stand.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Where a run is shown: on a screen, or as a line now and then.
pub(super) enum View {
    Screen(Box<Screen>),
    Log,
}

impl View {
    pub(super) fn new(screen: bool) -> std::io::Result<Self> {
        Ok(if screen { Self::Screen(Box::new(Screen::start()?)) } else { Self::Log })
    }

    /// Shows the run, and says how long it may stay so.
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
