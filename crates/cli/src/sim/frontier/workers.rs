//! Threads that execute the runs which a search of the frontier tries.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use sherwood_sim::{Board, Probe, Verdict, WorkerAction};

use super::trials::{Trials, Tried};
use crate::exit::Failure;
use crate::out;
use crate::sim::keep::Keep;

/// Threads that execute one run after another, each on one core.
pub(super) struct Workers<'a> {
    trials: &'a Trials,
    keep: &'a Keep,
    stop: &'a AtomicBool,
    board: Mutex<Board>,
    /// Signalled when a verdict is added or a thread ends.
    news: Condvar,
    /// Runs executed by this process, without those that were kept before.
    made: AtomicU64,
    kept: AtomicU64,
    began: Instant,
    bar: ProgressBar,
}

impl<'a> Workers<'a> {
    pub(super) fn new(trials: &'a Trials, keep: &'a Keep, stop: &'a AtomicBool, board: Board) -> Self {
        let style = ProgressStyle::with_template("{bar:40} {pos} of about {len} runs{msg}");
        let bar = ProgressBar::new(board.left());
        Self {
            trials,
            keep,
            stop,
            board: Mutex::new(board),
            news: Condvar::new(),
            made: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            began: Instant::now(),
            bar: bar.with_style(style.expect("a valid template")),
        }
    }

    /// Works until all searches are finished or stopped, and returns the board with their results.
    pub(super) fn work(self, threads: usize) -> Result<Board, Failure> {
        let outcomes: Vec<Result<(), Failure>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(|| self.take_probes())).collect();
            threads.into_iter().map(|thread| thread.join().expect("runs do not panic")).collect()
        });
        self.bar.finish_and_clear();
        outcomes.into_iter().collect::<Result<(), _>>()?;
        let kept = self.kept.into_inner();
        if kept > 0 {
            out::say(format_args!("{kept} verdicts were kept from before"));
        }
        Ok(self.board.into_inner().expect("no panics while held"))
    }

    fn take_probes(&self) -> Result<(), Failure> {
        while let Some(probe) = self.next() {
            // The cause of a failed run would fail the other runs too.
            let tried = self.try_out(probe).inspect_err(|_| self.stop.store(true, Relaxed));
            // The lock is held even when there is no result, so that no thread misses the
            // notification between checking the board and waiting.
            let mut board = self.board.lock().expect("no panics while held");
            if let Ok(Some(tried)) = &tried {
                board.learn(probe, self.verdict(tried));
            }
            drop(board);
            self.news.notify_all();
            tried?;
        }
        Ok(())
    }

    /// Returns the next run to try, waiting for one if necessary; none at the end of all searches.
    fn next(&self) -> Option<Probe> {
        let mut board = self.board.lock().expect("no panics while held");
        loop {
            if self.stop.load(Relaxed) {
                return None;
            }
            match board.take() {
                WorkerAction::Try(probe) => return Some(probe),
                WorkerAction::Done => return None,
                // Another thread works on the prerequisite and notifies this one when it ends, in
                // every case.
                WorkerAction::Wait => board = self.news.wait(board).expect("no panics while held"),
            }
        }
    }

    /// Returns the state of a tried run when its verdict is certain or cannot be determined; none
    /// when the run was stopped.
    fn try_out(&self, probe: Probe) -> Result<Option<Tried>, Failure> {
        let run = self.trials.run(probe)?;
        if let Some(tried) = self.keep.read::<Tried>(&run.inputs)?
            && (tried.ended.is_some() || self.verdict(&tried).is_some())
        {
            self.kept.fetch_add(1, Relaxed);
            return Ok(Some(tried));
        }
        let began = Instant::now();
        let made = self.trials.make(probe, &run, self.keep, self.stop);
        let Some(tried) = made.map_err(|failure| run.failed(failure))? else { return Ok(None) };
        self.keep.write(&tried)?;
        self.say(&run.name, &tried, began.elapsed());
        Ok(Some(tried))
    }

    fn verdict(&self, tried: &Tried) -> Option<Verdict> {
        tried.tally.verdict(self.trials.violation())
    }

    fn say(&self, name: &str, tried: &Tried, wall: Duration) {
        let made = self.made.fetch_add(1, Relaxed) + 1;
        // The board does not include the current run yet.
        let left = self.board.lock().expect("no panics while held").left().saturating_sub(1);
        let verdict = match (self.verdict(tried), &tried.ended) {
            (Some(Verdict::Kept), _) => "kept",
            (Some(Verdict::Broken), _) => "broken",
            (None, why) => &format!("no verdict, {}", why.as_deref().unwrap_or("the run is not over")),
        };
        let line = format!(
            "{name}: {verdict}, {} of {} observations violated, in {}; about {left} runs left, {}",
            tried.tally.violations,
            tried.tally.observations,
            HumanDuration(wall),
            self.time_for(left, made),
        );
        self.bar.set_length(made + left);
        self.bar.set_position(made);
        self.bar.set_message(format!(", {} left", self.time_for(left, made)));
        self.bar.suspend(|| out::say(line));
    }

    /// Estimates the time for the remaining runs from the runs made so far.
    fn time_for(&self, left: u64, made: u64) -> impl Display {
        HumanDuration(self.began.elapsed().mul_f64(left as f64 / made as f64))
    }
}
