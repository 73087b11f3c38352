//! The listeners of a node, and their connection to the backends.

mod behind;
mod listeners;
mod requests;
mod routes;

use std::sync::Arc;

use sherwood_listener::{Bound, Io, ListenerOptions, Standings, rounds_available};
use sherwood_ports::PassedSockets;

use crate::core::Core;
use crate::setup::ListenerSetup;
use crate::start::StartError;
use crate::tenants::NodeStandings;

pub(crate) use listeners::Listeners;
pub(crate) use requests::NodeBatchRequests;

/// Decides whether listeners without TLS serve connections in rounds, and logs what they use and
/// why.
pub(crate) fn decide_io(listeners: &[ListenerSetup]) -> Result<bool, StartError> {
    let Some(plain) = listeners.iter().find(|listener| listener.tls.is_none()) else { return Ok(false) };
    if plain.io == Io::Epoll {
        tracing::info!("listeners use epoll alone, as [server] io or --io says");
        return Ok(false);
    }
    match rounds_available() {
        Ok(()) => tracing::info!("listeners use io_uring for connections that are ready together"),
        Err(error) if plain.io == Io::IoUring => return Err(StartError::IoUring(error)),
        Err(error) => {
            tracing::info!(
                %error,
                "listeners use epoll alone: io_uring needs Linux 6.1 and permission, see [server] io"
            );
            return Ok(false);
        }
    }
    Ok(true)
}

/// Binds a listener, or takes its socket of those `passed`. `rounds` says whether it serves
/// connections in rounds if it has no TLS.
pub(crate) fn bind(
    setup: &ListenerSetup,
    item_size_max: u32,
    rounds: bool,
    passed: &mut PassedSockets,
) -> Result<Bound, StartError> {
    let options = ListenerOptions {
        bind: setup.bind.clone(),
        threads: setup.threads,
        item_size_max,
        databases: setup.databases,
        idle_timeout: setup.idle_timeout,
        pin_threads: setup.pin_threads,
        rounds,
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
