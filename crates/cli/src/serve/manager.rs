//! The service manager that started the process, such as systemd: the sockets that it passes, and
//! notifications of the node's state. Without one there are none.

use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

use sd_notify::NotifyState;
use sherwood_node::PassedSockets;
use tokio::time::{Interval, MissedTickBehavior};

use crate::exit::Failure;

/// Takes the sockets that the service manager passed. Call it once, before anything is opened.
///
/// # Errors
/// If the variables that announce them are malformed, or a socket does not listen.
pub(super) fn passed_sockets() -> Result<PassedSockets, Failure> {
    let passed = sd_notify::listen_fds_with_names().map_err(|error| {
        Failure::usage(format!(
            "the sockets that LISTEN_FDS and LISTEN_FDNAMES announce cannot be taken: {error}; LISTEN_FDS must be the \
             number of descriptors passed from 3 on, and LISTEN_FDNAMES a name for each, separated by colons"
        ))
    })?;
    // SAFETY: LISTEN_PID names this process, so its parent left these descriptors to it. They are
    // open, which was checked just now, and nothing else here owns them: nothing was opened yet.
    let owned = |fd| unsafe { OwnedFd::from_raw_fd(fd) };
    PassedSockets::new(passed.map(|(fd, name)| (name, owned(fd)))).map_err(Failure::usage)
}

/// Notifies that the node starts, which takes as long as the snapshot is read.
pub(super) fn starting() {
    notify(&[NotifyState::Status("opening the stores, and reading the snapshot if there is one")]);
}

/// Notifies that all listeners accept connections.
pub(super) fn started(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(first_line(status))]);
}

/// Notifies that the configuration is being read again; [`started`] follows.
pub(super) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!("the service manager was not told of the reload: {error}"),
    }
}

/// Notifies that the node is about to end.
pub(super) fn stopping() {
    let status = "answering the requests in flight, then writing the snapshot if one is configured";
    notify(&[NotifyState::Stopping, NotifyState::Status(status)]);
}

/// Notifies that all loops of the node turn.
pub(super) fn alive() {
    notify(&[NotifyState::Watchdog]);
}

/// The times at which a [watchdog](alive) has to be told that the node is alive.
pub(super) struct Watchdog(Option<Interval>);

impl Watchdog {
    /// Creates the times that the service manager asks for, from now on; there are none if it does
    /// not ask.
    pub(super) fn start() -> Self {
        // A loop that misses one check may still answer at the next, before the time is over.
        let interval = sd_notify::watchdog_enabled().map(|timeout| timeout / 4);
        Self(interval.filter(|interval| *interval > Duration::ZERO).map(|interval| {
            let mut interval = tokio::time::interval(interval);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        }))
    }

    /// Waits for the next time.
    pub(super) async fn due(&mut self) {
        match &mut self.0 {
            Some(interval) => drop(interval.tick().await),
            None => std::future::pending().await,
        }
    }
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("the service manager cannot be notified at NOTIFY_SOCKET: {error}");
    }
}

/// A line end would start another field of the notification.
fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
