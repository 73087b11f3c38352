//! The I/O thread, with one task for each request in flight.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;

use super::client::{Answer, Client, RequestError, Status};
use super::pacing::{Due, Pacing};
use super::requests::Requests;
use super::{Finished, Options, Phase, RunOutcome};
use crate::pace::Schedule;
use crate::{Control, LoadError};

pub(super) fn run(
    options: &Options,
    schedule: Schedule,
    requests: Box<dyn Requests>,
    control: &Control,
    observe: impl FnMut(&Finished),
) -> Result<RunOutcome, LoadError> {
    let system = |source| LoadError::System { source };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(system)?;
    let client = runtime.block_on(Client::connect(options))?;
    let origin = Instant::now();
    let (due, dues) = mpsc::channel(options.outstanding_max);
    let pacing = Pacing {
        origin,
        end: if options.phases.is_empty() { Duration::MAX } else { options.phases.iter().sum() },
        schedule,
        requests,
        places: Arc::new(Semaphore::new(options.outstanding_max)),
        due,
        runtime: runtime.handle().clone(),
    };
    let mut driver = Driver::new(options, client, origin, control, observe);
    let incomplete_because = std::thread::scope(|scope| -> Result<_, LoadError> {
        let builder = std::thread::Builder::new().name("load-pacing".to_owned());
        let pacing = builder.spawn_scoped(scope, move || pacing.run(control)).map_err(system)?;
        runtime.block_on(driver.drive(dues));
        Ok(pacing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    let Driver { phases, first_error, .. } = driver;
    Ok(RunOutcome {
        phases,
        elapsed: origin.elapsed(),
        deadline: options.deadline,
        failed_latency: options.failed_latency,
        incomplete_because,
        first_error,
    })
}

struct Driver<'a, F> {
    options: &'a Options,
    client: Arc<Client>,
    origin: Instant,
    control: &'a Control,
    observe: F,
    /// Ends of the run's phases (warm-up, measurement), from the start of the run.
    ends: Vec<Duration>,
    phases: Vec<Phase>,
    first_error: Option<String>,
}

/// A request that ended, with its permit to be in flight.
struct Ended {
    intended: Duration,
    late: Duration,
    latency: Duration,
    answer: Result<bytes::Bytes, Failure>,
    _place: OwnedSemaphorePermit,
}

enum Failure {
    Timeout,
    Request(RequestError),
}

impl<'a, F: FnMut(&Finished)> Driver<'a, F> {
    fn new(
        options: &'a Options,
        client: Arc<Client>,
        origin: Instant,
        control: &'a Control,
        observe: F,
    ) -> Self {
        let ends: Vec<Duration> = options
            .phases
            .iter()
            .scan(Duration::ZERO, |end, length| {
                *end += *length;
                Some(*end)
            })
            .collect();
        let phases = vec![Phase::default(); ends.len().max(1)];
        Self { options, client, origin, control, observe, ends, phases, first_error: None }
    }

    /// Runs until the pacing thread and every request have ended, or the pacing thread and the run
    /// is abandoned.
    async fn drive(&mut self, mut dues: mpsc::Receiver<Due>) {
        let mut in_flight: JoinSet<Ended> = JoinSet::new();
        let mut pacing = true;
        while pacing || !in_flight.is_empty() {
            tokio::select! {
                biased;
                due = dues.recv(), if pacing => match due {
                    Some(due) => self.begin(due, &mut in_flight),
                    // Dropping the tasks ends them and closes their connections.
                    None if self.control.abandoned() => return,
                    None => pacing = false,
                },
                Some(ended) = in_flight.join_next() => match ended {
                    Ok(ended) => self.end(ended),
                    Err(error) => std::panic::resume_unwind(error.into_panic()),
                },
            }
        }
    }

    fn begin(&mut self, due: Due, in_flight: &mut JoinSet<Ended>) {
        let Due { intended, body, place } = due;
        let Some(place) = place else {
            return self.overflow(intended);
        };
        let (client, origin, timeout) = (Arc::clone(&self.client), self.origin, self.options.timeout);
        in_flight.spawn(async move {
            let late = origin.elapsed().saturating_sub(intended);
            let answer = match tokio::time::timeout(timeout, client.post(body)).await {
                Ok(answer) => answer.map_err(Failure::Request),
                Err(_) => Err(Failure::Timeout),
            };
            let latency = origin.elapsed().saturating_sub(intended);
            Ended { intended, late, latency, answer, _place: place }
        });
    }

    /// Counts a request that is not sent because too many are in flight; it is a failure.
    fn overflow(&mut self, intended: Duration) {
        let late = self.origin.elapsed().saturating_sub(intended);
        let phase = self.phase_of(intended);
        self.phases[phase].overflow += 1;
        let outstanding = self.options.outstanding_max;
        self.first_error
            .get_or_insert_with(|| format!("{outstanding} requests were under way, the most allowed"));
        let latency = self.options.failed_latency.max(late);
        self.finish(Finished { failed: true, ..Finished::new(phase, intended, late, latency) });
    }

    fn end(&mut self, ended: Ended) {
        let Ended { intended, late, latency, answer, _place } = ended;
        let phase = self.phase_of(intended);
        let mut finished = Finished::new(phase, intended, late, latency);
        if let Err(error) = self.count(answer, &mut finished) {
            finished.failed = true;
            self.first_error.get_or_insert(error);
        }
        if finished.failed || finished.failed_keys > 0 {
            finished.latency = latency.max(self.options.failed_latency);
        }
        self.finish(finished);
    }

    /// Counts the keys of an answer, or returns the reason why there is no valid answer.
    fn count(
        &mut self,
        answer: Result<bytes::Bytes, Failure>,
        finished: &mut Finished,
    ) -> Result<(), String> {
        let body = answer.map_err(|failure| match failure {
            Failure::Timeout => format!("no answer within {:?}", self.options.timeout),
            Failure::Request(error) => error.to_string(),
        })?;
        let answer = Answer::parse(&body).map_err(|error| error.to_string())?;
        let Phase { by_backend, hit_latency, not_found, .. } = &mut self.phases[finished.phase];
        for result in answer.results {
            finished.marked_late |= result.late;
            if let (Status::Hit, Some(ms)) = (result.status, result.latency_ms) {
                let latency = Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default();
                match hit_latency.get_mut(result.backend.as_ref()) {
                    Some(latencies) => latencies.record(latency),
                    None => hit_latency.entry(result.backend.to_string()).or_default().record(latency),
                }
            }
            let hit = match result.status {
                Status::Hit | Status::Stale => true,
                Status::Miss => false,
                Status::NotFound => {
                    *not_found += 1;
                    false
                }
                Status::Rejected | Status::Timeout | Status::Error => {
                    finished.failed_keys += 1;
                    finished.rejected |= result.status == Status::Rejected;
                    continue;
                }
            };
            finished.hits += u32::from(hit);
            finished.misses += u32::from(!hit);
            match by_backend.get_mut(result.backend.as_ref()) {
                Some(counts) => counts.count(hit),
                None => by_backend.entry(result.backend.into_owned()).or_default().count(hit),
            }
        }
        Ok(())
    }

    fn finish(&mut self, finished: Finished) {
        let Finished {
            phase,
            intended: _,
            late,
            latency,
            hits,
            misses,
            failed_keys,
            rejected,
            marked_late,
            failed,
        } = finished;
        let phase = &mut self.phases[phase];
        phase.requests += 1;
        phase.queries += u64::from(hits) + u64::from(misses) + u64::from(failed_keys);
        phase.errors += u64::from(failed);
        phase.failed_keys += u64::from(failed_keys);
        phase.latency.record(latency);
        phase.lateness.record(late);
        if let Some(deadline) = self.options.deadline {
            let in_time = !failed && failed_keys == 0 && latency <= deadline;
            phase.deadlines.count(rejected, in_time);
            phase.deadlines.late += u64::from(marked_late);
        }
        self.control.add_done(1);
        (self.observe)(&finished);
    }

    fn phase_of(&self, intended: Duration) -> usize {
        self.ends.partition_point(|end| *end <= intended).min(self.phases.len() - 1)
    }
}
