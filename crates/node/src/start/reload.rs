//! A running node adopts another configuration.

use std::fmt::Display;

use sherwood_config::{Changes, Config};
use tokio::sync::mpsc;

use super::Node;
use crate::control::ControlChange;
use crate::core::Core;
use crate::reload::{ReloadError, ReloadOptions, ReloadRequest, Reloaded};
use crate::setup;

impl Node {
    /// Returns the receiver of the admin API's requests for reloads, of which the caller takes
    /// care from now on.
    #[must_use]
    pub fn reload_requests(&self) -> mpsc::Receiver<ReloadRequest> {
        self.core.reloads.receive()
    }

    /// Makes a node that was started from `old` one with the configuration `new`, and returns the
    /// settings that changed. Blocks for as long as a decision of the control loop takes.
    ///
    /// # Errors
    /// Fails, and changes nothing, if a restart is needed, a value is refused, or all listeners
    /// would be removed and `options` do not allow it.
    pub fn reload(&self, old: &Config, new: &Config, options: ReloadOptions) -> Reloaded {
        let removes_all = !old.listeners.is_empty() && new.listeners.is_empty();
        if removes_all && !options.may_remove_all_listeners {
            return Err(ReloadError::RemovesAllListeners);
        }
        let changes = Changes::between(old, new).map_err(ReloadError::NeedsRestart)?;
        let mut listeners = self.listeners();
        let kept = &changes.listeners.kept;
        let prepared = listeners.prepare(&self.core, &setup::listeners(new), kept, new.tenancy.as_ref());
        let prepared = prepared.map_err(refused)?;
        apply(&self.core, &changes, new, || listeners.adopt(&self.core, prepared).map_err(refused))?;
        if let Some(snapshot) = &mut *self.snapshot.lock().expect("no panics while held") {
            // The next start compares it with the configuration.
            snapshot.fingerprint = setup::fingerprint(new);
        }
        Ok(changes.names(new))
    }
}

fn refused(error: impl Display) -> ReloadError {
    ReloadError::Refused(error.to_string())
}

/// Checks all changes that may be refused, and applies the changes. `listen` changes the listeners;
/// if it fails, nothing has changed.
pub(super) fn apply(
    core: &Core,
    changes: &Changes,
    new: &Config,
    listen: impl FnOnce() -> Result<(), ReloadError>,
) -> Result<(), ReloadError> {
    let mut control = core.control();
    let total = changes.total_bytes.unwrap_or(control.total_bytes());
    control.check_pins(&changes.pins, total).map_err(refused)?;
    let Changes { total_bytes, policy, dry_run, guard, between, terms, .. } = changes;
    let change = ControlChange {
        total_bytes: *total_bytes,
        policy: policy.as_deref(),
        between: between.as_deref(),
        dry_run: *dry_run,
        guard: *guard,
        terms,
    };
    let checked = control.check(&change).map_err(refused)?;
    listen()?;
    for &(partition, pin) in &changes.pins {
        control.pin(partition, pin);
    }
    // Before a larger total is in force, so that the ceiling stays at the total.
    if let (Some(total_bytes), Some(limit)) = (changes.total_bytes, &core.resident_limit) {
        limit.set(total_bytes, setup::slack_bytes(new));
    }
    control.apply(checked);
    if changes.slo.is_some() {
        core.telemetry.set_slo(new.slo, core.clock.now());
        core.control().set_slo(&new.slo);
    }
    for &(index, slo) in &changes.slos {
        core.telemetry.slos().set(index, slo, core.clock.now());
    }
    for (backend, rules) in &changes.lifetimes {
        if let Some(driver) = core.backend(*backend) {
            driver.set_lifetimes(rules);
        }
    }
    for (backend, times) in &changes.times {
        if let Some(driver) = core.backend(*backend) {
            driver.set_times(times);
        }
    }
    if let (Some(setup), Some(cluster)) = (&changes.cluster, &core.cluster) {
        cluster.set_nodes(setup.nodes.clone());
    }
    if let (Some(setup), Some(rates)) = (&changes.cluster, &core.rates) {
        rates.set_nodes(setup);
    }
    if let (Some(setup), Some(statistics)) = (&changes.cluster, &core.statistics) {
        statistics.set_nodes(setup.nodes.clone(), setup.statistics.clone());
    }
    Ok(())
}
