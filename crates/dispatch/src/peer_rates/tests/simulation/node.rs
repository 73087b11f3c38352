//! A simulated node: its process, its clock, and the driver that carries out actions.

use std::collections::VecDeque;

use sherwood_model::{Instant, ResourceId};

use super::super::super::terms::Terms;
use super::super::super::{PeerRateOptions, PeerRates, RateAction};
use super::clock::Clock;
use super::plan::Configuration;
use super::{Flaw, plan};
use crate::{RatesInForce, TenantUse};

/// Number of tenants.
pub(super) const TENANTS: usize = 3;

/// A node.
pub(super) struct Node {
    pub(super) name: &'static str,
    pub(super) process: Option<Process>,
    /// Number of processes so far.
    pub(super) incarnation: u64,
    /// True if the node has the configuration after the change.
    pub(super) is_changed: bool,
    /// Time until which the node does nothing.
    pub(super) paused_until: Instant,
    /// Units per second that each tenant would use of each resource.
    pub(super) offered: Vec<[f64; TENANTS]>,
}

/// A running process.
pub(super) struct Process {
    pub(super) rates: PeerRates,
    pub(super) clock: Clock,
    /// Actions that have not been carried out, in their order.
    pub(super) actions: VecDeque<RateAction>,
    pub(super) is_acting: bool,
    /// The rates that the driver has set, of each resource.
    pub(super) set: Vec<RatesInForce>,
    used: Vec<[TenantUse; TENANTS]>,
    looked_at: Instant,
    lends: bool,
    flaw: Flaw,
}

impl Node {
    pub(super) fn new(name: &'static str) -> Self {
        Self {
            name,
            process: None,
            incarnation: 0,
            is_changed: false,
            paused_until: Instant::ZERO,
            offered: vec![[0.0; TENANTS]; 2],
        }
    }

    /// Starts a process. `lends` is true if units may be lent to other tenants.
    pub(super) fn start(
        &mut self,
        now: Instant,
        clock: Clock,
        configuration: &Configuration,
        (lends, flaw): (bool, Flaw),
    ) {
        self.incarnation += 1;
        let mut terms = Terms::default();
        match flaw {
            Flaw::NoMargin => terms.returns_after = terms.loan,
            Flaw::ForgetsLoans => terms.forgets_after = std::time::Duration::ZERO,
            Flaw::RisesUnasked => {
                (terms.silent_at_start, terms.silent_at_change) = Default::default();
            }
            Flaw::None | Flaw::FromReceipt | Flaw::AnswersFirst | Flaw::NoEnd => {}
        }
        let options = PeerRateOptions {
            node: self.name.into(),
            nodes: configuration.nodes.clone(),
            incarnation: self.incarnation,
            totals: configuration.totals.clone(),
            tenants: TENANTS as u16,
            lends,
        };
        self.process = Some(Process {
            rates: PeerRates::with_terms(clock.shows(now), options, terms),
            clock,
            actions: VecDeque::new(),
            is_acting: false,
            set: vec![RatesInForce::default(); 2],
            used: vec![[TenantUse::default(); TENANTS]; 2],
            looked_at: now,
            lends,
            flaw,
        });
    }

    /// Runs the process's timers, after a look at the use by the tenants.
    pub(super) fn wake(&mut self, now: Instant) {
        let Some(process) = &mut self.process else { return };
        let shown = process.clock.shows(now);
        let elapsed_s = (now - process.looked_at).as_secs_f64();
        process.looked_at = now;
        for (resource, offered) in self.offered.iter().enumerate() {
            let rates = process.in_force(resource, now);
            let own: Vec<f64> = (0..TENANTS).map(|tenant| offered[tenant].min(rates.1[tenant])).collect();
            let mut unused = if process.lends { rates.0 - own.iter().sum::<f64>() } else { 0.0 };
            for (tenant, used) in process.used[resource].iter_mut().enumerate() {
                let lent = (offered[tenant] - own[tenant]).min(unused).max(0.0);
                unused -= lent;
                used.own_units += own[tenant] * elapsed_s;
                used.lent_units += lent * elapsed_s;
                used.waiting = u32::from(offered[tenant] > own[tenant] + lent);
            }
            let id = ResourceId::from_index(resource);
            process.rates.handle_use(shown, id, &process.used[resource]);
        }
        process.rates.handle_timeout(shown);
    }
}

impl Process {
    /// Returns the total and the tenants' rates in force of a resource.
    pub(super) fn in_force(&self, resource: usize, now: Instant) -> (f64, Vec<f64>) {
        let set = &self.set[resource];
        let rates = if self.flaw == Flaw::NoEnd { &set.rates } else { set.at(self.clock.shows(now)) };
        if rates.per_s.is_empty() {
            return (rates.total_per_s, vec![0.0; TENANTS]);
        }
        (rates.total_per_s, rates.per_s.clone())
    }

    /// Takes over the actions of the process.
    pub(super) fn poll(&mut self) {
        let new: Vec<_> = std::iter::from_fn(|| self.rates.poll_action()).collect();
        let is_rate = |action: &RateAction| matches!(action, RateAction::SetRates(..));
        let (rates, messages): (Vec<_>, Vec<_>) = new.iter().cloned().partition(is_rate);
        match self.flaw {
            Flaw::AnswersFirst => self.actions.extend(messages.into_iter().chain(rates)),
            _ => self.actions.extend(new),
        }
    }
}

/// Returns the index of the node with this name.
pub(super) fn index(name: &str) -> usize {
    plan::NAMES.iter().position(|other| *other == name).expect("a known name")
}
