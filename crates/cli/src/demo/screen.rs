//! The demo's live screen.
//!
//! It is made for viewers who have never heard of Sherwood and look at it for ten seconds. From top
//! to bottom it shows the current run and the remaining time, SLO compliance now and so far, each
//! backend's share of the cache and its slowdown, and the latest decisions. Everything is shown in
//! words as well as in colour. Only the terminal's own 16 colours are used, so that it is readable
//! on any background, and without colour (`NO_COLOR` is respected).
//!
//! The picture is a pure function of a [`Live`] and of the slowdowns seen so far; only this file
//! accesses the terminal.

mod backends;
mod layout;
mod plot;
mod slowdowns;
#[cfg(test)]
mod tests;
mod view;
mod words;

use std::io;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::prelude::CrosstermBackend;

use self::slowdowns::Slowdowns;
use super::live::Live;

/// The terminal while it shows the demo: alternate screen, raw mode, no cursor. Dropping it
/// restores the terminal, and so does a panic on any thread, before the panic's message is printed.
/// There is at most one at a time.
pub(crate) struct Screen {
    terminal: DefaultTerminal,
    slowdowns: Slowdowns,
}

impl Screen {
    /// Takes over the terminal.
    ///
    /// # Errors
    ///
    /// When standard output is not a terminal that can be taken over; it is then left unchanged.
    pub(crate) fn start() -> io::Result<Self> {
        give_back_on_panic();
        TAKEN.store(true, Ordering::SeqCst);
        let taken = take_over().map(|terminal| Self { terminal, slowdowns: Slowdowns::default() });
        if taken.is_err() {
            give_back();
        }
        taken
    }

    /// Draws `live` at the terminal's current size. Only cells that changed are written.
    ///
    /// # Errors
    ///
    /// When the terminal cannot be written to, or was restored because a thread panicked.
    pub(crate) fn draw(&mut self, live: &Live) -> io::Result<()> {
        if !TAKEN.load(Ordering::SeqCst) {
            return Err(io::Error::other(
                "draw the screen: a thread panicked and the terminal was given back",
            ));
        }
        self.slowdowns.note(live);
        let slowdowns = &self.slowdowns;
        self.terminal.draw(|frame| view::render(frame.area(), frame.buffer_mut(), live, slowdowns))?;
        Ok(())
    }

    /// Returns true when q, Esc or Ctrl-C was pressed since the last call. Does not block; reads up
    /// to 256 pending events.
    ///
    /// # Errors
    ///
    /// When the terminal cannot be read.
    pub(crate) fn quit_asked(&mut self) -> io::Result<bool> {
        for _ in 0..EVENTS_MAX {
            if !event::poll(Duration::ZERO)? {
                return Ok(false);
            }
            if matches!(event::read()?, Event::Key(key) if quits(key)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn take_over() -> io::Result<DefaultTerminal> {
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen)?;
    DefaultTerminal::new(CrosstermBackend::new(io::stdout()))
}

/// Restores the terminal as it was before [`take_over`], once. Doing so twice would move the cursor
/// over text printed in between.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        // Errors are ignored, since there is no remedy. Raw mode ends first because it disturbs
        // most.
        let _ = disable_raw_mode();
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
    }
}

fn give_back_on_panic() {
    static HOOKED: Once = Once::new();
    HOOKED.call_once(|| {
        let next = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            next(panic);
        }));
    });
}

fn quits(key: KeyEvent) -> bool {
    let interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press
        && (interrupt || matches!(key.code, KeyCode::Char('q' | 'Q') | KeyCode::Esc))
}

/// True while a [`Screen`] has the terminal.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Most events read in one call: more than a held key or a resize causes between two pictures.
const EVENTS_MAX: usize = 256;
