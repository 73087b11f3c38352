//! The terminal, taken over for a picture of the whole screen.

use std::io;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::prelude::CrosstermBackend;
use ratatui::{DefaultTerminal, Frame};

/// The terminal while it shows a picture: alternate screen, raw mode, no cursor. Dropping it
/// restores the terminal, and so does a panic on any thread, before the panic's message is printed.
/// There is at most one at a time.
pub(crate) struct Terminal(DefaultTerminal);

impl Terminal {
    /// Takes over the terminal.
    ///
    /// # Errors
    ///
    /// When standard output is not a terminal that can be taken over; it is then left unchanged.
    pub(crate) fn start() -> io::Result<Self> {
        give_back_on_panic();
        TAKEN.store(true, Ordering::SeqCst);
        let taken = take_over().map(Self);
        if taken.is_err() {
            give_back();
        }
        taken
    }

    /// Draws at the terminal's current size. Only cells that changed are written.
    ///
    /// # Errors
    ///
    /// When the terminal cannot be written to, or was restored because a thread panicked.
    pub(crate) fn draw(&mut self, picture: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        if !TAKEN.load(Ordering::SeqCst) {
            return Err(io::Error::other(
                "draw the screen: a thread panicked and the terminal was given back",
            ));
        }
        self.0.draw(picture)?;
        Ok(())
    }

    /// Returns the keys that were pressed since the last call, at most 256, after waiting for the
    /// first of them or another event for up to `wait`.
    ///
    /// # Errors
    ///
    /// When the terminal cannot be read.
    pub(crate) fn keys(&mut self, mut wait: Duration) -> io::Result<Vec<KeyEvent>> {
        let mut keys = Vec::new();
        for _ in 0..EVENTS_MAX {
            if !event::poll(wait)? {
                break;
            }
            wait = Duration::ZERO;
            if let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
            {
                keys.push(key);
            }
        }
        Ok(keys)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        give_back();
    }
}

/// Returns true for q, Esc and Ctrl-C.
pub(crate) fn quits(key: KeyEvent) -> bool {
    let interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    interrupt || matches!(key.code, KeyCode::Char('q' | 'Q') | KeyCode::Esc)
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

/// True while a [`Terminal`] has the terminal.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Most events read in one call: more than a held key or a resize causes between two pictures.
const EVENTS_MAX: usize = 256;
