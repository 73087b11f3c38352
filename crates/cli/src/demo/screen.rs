//! The demo's live screen.
//!
//! It is made for viewers who have never heard of Sherwood and look at it for ten seconds. From top
//! to bottom it shows the current run and the remaining time, SLO compliance now and so far, each
//! backend's share of the cache and its slowdown, and the latest decisions. Everything is shown in
//! words as well as in colour. Only the terminal's own 16 colours are used, so that it is readable
//! on any background, and without colour (`NO_COLOR` is respected).
//!
//! The picture is a pure function of a [`Live`] and of the slowdowns seen so far.

mod backends;
mod layout;
mod plot;
mod slowdowns;
#[cfg(test)]
mod tests;
mod view;

use std::io;
use std::time::Duration;

use self::slowdowns::Slowdowns;
use super::live::Live;
use crate::terminal::{Terminal, quits};

/// The terminal while it shows the demo.
pub(crate) struct Screen {
    terminal: Terminal,
    slowdowns: Slowdowns,
}

impl Screen {
    /// Takes over the terminal.
    ///
    /// # Errors
    ///
    /// When standard output is not a terminal that can be taken over; it is then left unchanged.
    pub(crate) fn start() -> io::Result<Self> {
        Ok(Self { terminal: Terminal::start()?, slowdowns: Slowdowns::default() })
    }

    /// Draws `live`.
    ///
    /// # Errors
    ///
    /// When the terminal cannot be written to, or was restored because a thread panicked.
    pub(crate) fn draw(&mut self, live: &Live) -> io::Result<()> {
        self.slowdowns.note(live);
        let slowdowns = &self.slowdowns;
        self.terminal.draw(|frame| view::render(frame.area(), frame.buffer_mut(), live, slowdowns))
    }

    /// Returns true when q, Esc or Ctrl-C was pressed since the last call. Does not block.
    ///
    /// # Errors
    ///
    /// When the terminal cannot be read.
    pub(crate) fn quit_asked(&mut self) -> io::Result<bool> {
        Ok(self.terminal.keys(Duration::ZERO)?.into_iter().any(quits))
    }
}
