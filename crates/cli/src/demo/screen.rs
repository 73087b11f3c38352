//! The one live screen of the demo.
//!
//! Somebody who has never heard of Sherwood looks at it for ten seconds. So it answers, from top to
//! bottom, what a newcomer asks: what runs and how long still; is the promise kept; was it kept
//! before; who holds the cache and who is slow; what was decided last. Everything is said in words
//! as well as in colour, and only the terminal's own 16 colours are used, so it can be read on any
//! background, and without colour (`NO_COLOR` is respected).
//!
//! What is drawn is a pure function of a [`Live`] and of the slowdowns seen so far; only this file
//! touches a terminal.

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

/// The terminal while it shows the demo: alternate screen, raw mode, no cursor. Dropping it gives
/// the terminal back, and so does a panic on any thread, before the panic's message is printed.
/// There is at most one at a time.
pub(crate) struct Screen {
    terminal: DefaultTerminal,
    slowdowns: Slowdowns,
}

impl Screen {
    /// Takes the terminal over.
    ///
    /// # Errors
    ///
    /// When standard output is not a terminal that can be taken over; it is then left as it was.
    pub(crate) fn start() -> io::Result<Self> {
        give_back_on_panic();
        TAKEN.store(true, Ordering::SeqCst);
        let taken = take_over().map(|terminal| Self { terminal, slowdowns: Slowdowns::default() });
        if taken.is_err() {
            give_back();
        }
        taken
    }

    /// Draws `live` in the terminal's size of this moment. Only cells that changed are written.
    ///
    /// # Errors
    ///
    /// When the terminal cannot be written to, or was given back because a thread panicked.
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

    /// Whether q, Esc or Ctrl-C was pressed since the last call. Never waits; takes up to 256
    /// waiting events.
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

/// Undoes [`take_over`], once. A second time would put the cursor back over what was printed in
/// between.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        // Nothing can be done for a terminal that refuses; raw mode goes first, it hurts most.
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

/// Whether a [`Screen`] has the terminal.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Events taken in one go: more than a held key or a dragged corner makes between two pictures.
const EVENTS_MAX: usize = 256;
