//! The managers of replicated stores, as observed, and as shown by events and the admin API.

use std::sync::Arc;

use serde_json::{Value, json};
use sherwood_config::{ManagedStore, StoresSetup};
use sherwood_control::{StoreMeasure, StoreSaid, StoreSeen, StoreStanding, Stores};
use sherwood_model::{Instant, Slo};
use sherwood_policy::stores::Manager;

use super::Control;
use crate::backend::BackendDriver;

/// The replicated stores that have managers.
pub(crate) struct ManagedStores {
    setup: StoresSetup,
    slo: Slo,
    backends: Vec<Arc<BackendDriver>>,
}

impl ManagedStores {
    /// Selects the stores of the managers; none without any.
    pub(crate) fn new(setup: StoresSetup, slo: Slo, backends: &[Option<Arc<BackendDriver>>]) -> Option<Self> {
        let of = |store: &ManagedStore| backends.get(store.backend.index())?.clone();
        let backends = setup.stores.iter().map(of).collect::<Option<_>>()?;
        Some(Self { setup, slo, backends })
    }

    /// Returns the SLO at the start.
    pub(super) fn slo(&self) -> &Slo {
        &self.slo
    }

    /// Returns the lever that chooses the plans of these stores.
    pub(super) fn lever(&self, now: Instant) -> Stores {
        let forecast = self.setup.forecast;
        self.setup.stores.iter().fold(Stores::new(&self.slo, now), |stores, store| {
            let layouts = store.layouts.iter();
            let layouts = layouts.map(|layout| (layout.partitions.into(), layout.duplicates.into()));
            let manager = Manager::new(store.options, store.plan).among(layouts);
            stores.with(store.backend, manager, forecast, store.options.dry_run)
        })
    }

    /// Returns the accesses of each store since the call before, and has the next ones measured.
    pub(super) fn observe(&self, lever: &Stores) -> Vec<StoreSeen> {
        let seen = |StoreMeasure { backend, bound, slow_from }| {
            let driver = self.backends.iter().find(|driver| driver.id == backend)?;
            driver.drive(|state, _, _| {
                let attempts = state.machine.take_attempts(bound, slow_from);
                let (layout, logs) = (state.machine.layout()?, state.machine.logs()?);
                Some(StoreSeen { backend, layout, is_settled: logs.is_settled, attempts })
            })
        };
        lever.measures().filter_map(seen).collect()
    }

    /// Returns the text and data of the event that reports a decision or its effect.
    pub(super) fn said(&self, said: &StoreSaid) -> (String, Value) {
        let StoreSaid { backend, line, plan, applied } = said;
        let driver = self.backends.iter().find(|driver| driver.id == *backend);
        let name = driver.map_or("", |driver| &driver.name);
        let data = json!({ "backend": name, "plan": plan, "applied": applied });
        (format!("{name}: {line}"), data)
    }
}

impl Control {
    /// Sets the SLO that replicated stores are to meet.
    pub(crate) fn set_slo(&mut self, slo: &Slo) {
        self.rounds.set_slo(slo);
    }

    /// Returns the standing of each managed store; none without managers.
    pub(crate) fn store_standings(&self) -> impl Iterator<Item = StoreStanding> {
        self.rounds.stores().into_iter().flat_map(Stores::standings)
    }
}
