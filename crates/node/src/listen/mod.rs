//! The listeners of a node, and their connection to the backends.

mod behind;
mod listeners;
mod requests;
mod routes;

use std::sync::Arc;

use sherwood_listener::{Bound, ListenerOptions, Standings};
use sherwood_ports::PassedSockets;

use crate::core::Core;
use crate::setup::ListenerSetup;
use crate::start::StartError;
use crate::tenants::NodeStandings;

pub(crate) use listeners::Listeners;
pub(crate) use requests::NodeBatchRequests;

/// Binds a listener, or takes its socket of those `passed`.
pub(crate) fn bind(
    setup: &ListenerSetup,
    item_size_max: u32,
    passed: &mut PassedSockets,
) -> Result<Bound, StartError> {
    let options = ListenerOptions {
        bind: setup.bind.clone(),
        threads: setup.threads,
        item_size_max,
        databases: setup.databases,
        idle_timeout: setup.idle_timeout,
        pin_threads: setup.pin_threads,
        ..ListenerOptions::default()
    };
    Ok(match passed.take(&setup.bind) {
        Some(socket) => Bound::passed(options, socket)?,
        None => Bound::bind(options)?,
    })
}

/// The quotas of the node's tenants, for listeners; none without tenants.
fn standings(core: &Core) -> Option<Arc<dyn Standings>> {
    let ((setup, counters), quotas) =
        core.tenancy.clone().zip(core.counters.clone()).zip(core.quotas.clone())?;
    Some(Arc::new(NodeStandings { names: Arc::clone(&core.names), setup, counters, quotas }))
}
