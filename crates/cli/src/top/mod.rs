//! `sherwood top`: a live view of a node in the terminal, from its admin API.
//!
//! A thread asks the node; the main thread waits for keys and draws, so that a node that does not
//! answer never blocks the keys. The picture is a pure function of [`State`].

mod lists;
mod nodes;
mod parts;
mod screen;
mod seen;
mod state;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::admin::{AdminClient, AdminNode};
use crate::exit::Failure;
use crate::terminal::Terminal;
use crate::{duration, interrupt, out};
use seen::Seen;
use state::{Question, State, Wish};

/// Time that the screen waits for a key before it looks for answers.
const LOOK: Duration = Duration::from_millis(50);
/// Time within which a node must answer, so that one that hangs is soon seen to be away.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// Columns of the text that `--once` prints.
const TEXT_COLUMNS: u16 = 100;

/// Shows a running node live: latencies, partitions, backends, keys, decisions
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sherwood top                                    the node on this machine
  sherwood top --url http://cache-1:8080          another one
  sherwood top --url https://cache-1:8443 --ca ca.pem --token-file token
  sherwood top --once                             one look, as text

Keys: Tab turns to backends, hot keys, tenants, nodes and events, q quits, ? shows the others.")]
pub(crate) struct Args {
    #[command(flatten)]
    node: AdminNode,
    /// Ask the node this often, 100ms to 60s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Print one look as text, and end
    #[arg(long)]
    once: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    duration::between(Duration::from_millis(100), Duration::from_secs(60), text)
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let Args { node, interval, once } = args;
    let client = node.client_within(ANSWER_MAX)?;
    // A wrong flag or an absent node is better said where the shell still shows it.
    let first = Seen::ask(&client, 0, None)?;
    let mut state = State::new(node.url().to_owned());
    state.update(Ok(first), Duration::ZERO);
    if *once {
        return out::print(&screen::text(&state, TEXT_COLUMNS));
    }
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "there is no terminal to show the node in; give --once for one look as text",
        ));
    }
    let stop = interrupt::stop_flag()?;
    let (asked, answers) = ask_again_and_again(client, *interval);
    let mut terminal = Terminal::start().map_err(on_terminal)?;
    while !stop.load(Relaxed) {
        if step(&mut terminal, &mut state, &asked, &answers)? == Wish::Quit {
            return Ok(());
        }
    }
    Err(Failure::interrupted("interrupted"))
}

/// An answer of the node, with the time since the one before.
type Answer = (Result<Seen, String>, Duration);

/// Starts a thread that asks the node at an interval what the last value sent says; it ends with
/// the sender.
fn ask_again_and_again(node: AdminClient, interval: Duration) -> (Sender<Question>, Receiver<Answer>) {
    let (sender, receiver) = channel();
    let (wanted, wishes) = channel();
    let ask = move || {
        let (mut question, mut last, mut now_ms) = (Question::default(), Instant::now(), 0);
        loop {
            match wishes.recv_timeout(interval) {
                Ok(wish) => question = wish,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if question.is_paused {
                continue;
            }
            let answer = Seen::ask(&node, now_ms, question.also).map_err(|failure| failure.to_string());
            if let Ok(seen) = &answer {
                now_ms = seen.history.now_ms;
            }
            let elapsed = last.elapsed();
            if answer.is_ok() {
                last = Instant::now();
            }
            if sender.send((answer, elapsed)).is_err() {
                return;
            }
        }
    };
    // Not waited for: it may be in the middle of a question when the user quits.
    drop(thread::spawn(ask));
    (wanted, receiver)
}

/// Draws once, and takes in keys and answers.
fn step(
    terminal: &mut Terminal,
    state: &mut State,
    asked: &Sender<Question>,
    answers: &Receiver<Answer>,
) -> Result<Wish, Failure> {
    terminal.draw(|frame| screen::render(frame.area(), frame.buffer_mut(), state)).map_err(on_terminal)?;
    let question = state.question();
    for key in terminal.keys(LOOK).map_err(on_terminal)? {
        if state.press(key) == Wish::Quit {
            return Ok(Wish::Quit);
        }
    }
    if state.question() != question {
        // The thread has ended only if it panicked; its last answer is shown then.
        let _ = asked.send(state.question());
    }
    for (answer, elapsed) in answers.try_iter() {
        state.update(answer, elapsed);
    }
    Ok(Wish::Redraw)
}

fn on_terminal(error: io::Error) -> Failure {
    Failure::failed(format!("using the terminal: {error}"))
}
