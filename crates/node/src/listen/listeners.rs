//! The running listeners of a node, which a reload adds and removes.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use sherwood_config::{BatchMode, TenancySetup};
use sherwood_dispatch::Charged;
use sherwood_listener::{
    Address, BackgroundWork, BatchCounting, Bound, BufferBytes, Clock, ConnectionLimit, Passwords, Protocol,
    Running, Service,
};
use sherwood_ports::PassedSockets;
use sherwood_ports::access::{PasswordFile, UserTenants, Users};
use sherwood_ports::tls::Tls;
use sherwood_process::entropy::Entropy;

use super::behind::Behind;
use super::{bind, decide_io, routes, standings};
use crate::core::Core;
use crate::setup::ListenerSetup;
use crate::start::StartError;

/// The listeners of a node, in the order of its configuration.
pub(crate) struct Listeners {
    serving: Vec<Listener>,
    /// Listeners that were removed, and may still answer what their clients had sent.
    ending: Vec<Ending>,
    connection_limit: Arc<ConnectionLimit>,
    entropy: Arc<Entropy>,
}

struct Listener {
    setup: ListenerSetup,
    passwords: Option<Arc<PasswordFile>>,
    running: Running,
}

struct Ending {
    address: Address,
    /// Ends once the listener has ended.
    thread: JoinHandle<()>,
}

/// A listener whose port is open and whose files are read. It serves no client yet.
struct Ready {
    setup: ListenerSetup,
    bound: Bound,
    passwords: Option<Arc<PasswordFile>>,
}

/// A change of the listeners that cannot fail any more, except for a lack of threads.
pub(crate) struct Prepared {
    places: Vec<Place>,
    users: Vec<(Arc<PasswordFile>, UserTenants, Users)>,
}

/// A place in the new order.
enum Place {
    /// Of the running listener at this position.
    Kept(usize),
    Added(Box<Ready>),
}

impl Listeners {
    /// Starts the threads of the listeners `bound` for `setups`, after all passwords and
    /// certificates are read.
    ///
    /// # Errors
    /// If a file cannot be used or the system has no thread; then none is running.
    pub(crate) fn start(
        core: &Arc<Core>,
        setups: &[ListenerSetup],
        bound: Vec<Bound>,
        connections_max: usize,
        entropy: Arc<Entropy>,
    ) -> Result<Self, StartError> {
        let connection_limit = Arc::new(ConnectionLimit::new(connections_max));
        let mut listeners = Self { serving: Vec::new(), ending: Vec::new(), connection_limit, entropy };
        let ready = setups.iter().zip(bound).map(|(setup, bound)| Ready::new(core, setup, bound));
        let ready = ready.collect::<Result<Vec<_>, _>>()?;
        for ready in ready {
            listeners.serving.push(listeners.serve(core, ready)?);
        }
        listeners.announce(core);
        Ok(listeners)
    }

    /// Opens the ports and files of a change: `setups` are the new listeners, and `kept` has for
    /// each its present position, or none if it is added. `tenancy` tells the tenants of users.
    /// Waits for a removed listener whose address is used again, at most its drain timeout.
    ///
    /// # Errors
    /// If a port or a file cannot be used; then nothing has changed.
    pub(crate) fn prepare(
        &mut self,
        core: &Core,
        setups: &[ListenerSetup],
        kept: &[Option<usize>],
        tenancy: Option<&TenancySetup>,
    ) -> Result<Prepared, StartError> {
        let (mut places, mut users) = (Vec::new(), Vec::new());
        for (setup, kept) in setups.iter().zip(kept) {
            let Some(position) = *kept else {
                self.finish_at(&setup.bind);
                let rounds = decide_io(std::slice::from_ref(setup))?;
                let item_size_max = core.cache.options().item_bytes_max;
                let bound = bind(setup, item_size_max, rounds, &mut PassedSockets::default())?;
                let ready = Ready::with_tenants(core, tenancy, setup, bound)?;
                places.push(Place::Added(Box::new(ready)));
                continue;
            };
            places.push(Place::Kept(position));
            if let Some(file) = &self.serving[position].passwords {
                let tenants = routes::user_tenants(tenancy, setup);
                if let Some(found) = file.reread(&tenants)? {
                    users.push((Arc::clone(file), tenants, found));
                }
            }
        }
        Ok(Prepared { places, users })
    }

    /// Makes a prepared change: starts what is added, and tells what is removed to stop.
    ///
    /// # Errors
    /// If the system has no thread; then nothing has changed.
    pub(crate) fn adopt(&mut self, core: &Arc<Core>, prepared: Prepared) -> Result<(), StartError> {
        let mut started = Vec::new();
        let mut positions = Vec::new();
        for place in prepared.places {
            positions.push(match place {
                Place::Kept(position) => Some(position),
                Place::Added(ready) => {
                    started.push(self.serve(core, *ready)?);
                    None
                }
            });
        }
        for (file, tenants, users) in prepared.users {
            file.adopt(tenants, users);
        }
        let mut old: Vec<_> = std::mem::take(&mut self.serving).into_iter().map(Some).collect();
        let mut started = started.into_iter();
        let new = positions.into_iter().filter_map(|position| match position {
            Some(position) => old[position].take(),
            None => started.next(),
        });
        self.serving = new.collect();
        for removed in old.into_iter().flatten() {
            removed.running.stop();
            let address = removed.running.address().clone();
            let end = || end(removed.running);
            // Without a thread, the node does not wait until the last clients have their answers.
            if let Ok(thread) = thread::Builder::new().name("sherwood-ending".to_owned()).spawn(end) {
                self.ending.push(Ending { address, thread });
            }
        }
        self.announce(core);
        Ok(())
    }

    /// Returns the addresses of the listeners of a protocol.
    pub(crate) fn addresses(&self, protocol: Protocol) -> Vec<Address> {
        let speaking = self.serving.iter().filter(|listener| listener.setup.protocol == protocol);
        speaking.map(|listener| listener.running.address().clone()).collect()
    }

    /// Asks every thread to answer.
    pub(crate) fn check(&self) {
        self.serving.iter().for_each(|listener| listener.running.check());
    }

    /// Returns true if all threads have answered the last [check](Self::check).
    pub(crate) fn is_checked(&self) -> bool {
        self.serving.iter().all(|listener| listener.running.is_checked())
    }

    /// Stops all listeners and waits for their threads.
    pub(crate) fn stop(self) {
        self.serving.iter().for_each(|listener| listener.running.stop());
        self.serving.into_iter().for_each(|listener| end(listener.running));
        self.ending.into_iter().for_each(Ending::wait);
    }

    /// Waits for the removed listeners that have ended already, and for those at `address`.
    fn finish_at(&mut self, address: &Address) {
        let is_due = |ending: &mut Ending| ending.thread.is_finished() || ending.address == *address;
        self.ending.extract_if(.., is_due).for_each(Ending::wait);
    }

    fn serve(&self, core: &Arc<Core>, ready: Ready) -> Result<Listener, StartError> {
        let Ready { setup, bound, passwords } = ready;
        let clock: Arc<dyn Clock> = Arc::new(core.clock);
        let service = Service {
            cache: Arc::clone(&core.cache),
            routing: routes::routing(core, &setup)?,
            users: routes::users(core, &setup)?,
            network: core.network.as_ref().map(|network| network.gate() as Arc<dyn Charged>),
            standings: standings(core),
            times: Arc::clone(&core.times),
            batches: batches(core, &setup),
            hot_keys: Some(Arc::clone(&core.hot_keys)),
            connection_limit: Arc::clone(&self.connection_limit),
            buffers: Arc::clone(&core.buffers) as Arc<dyn BufferBytes>,
            background: Some(Arc::clone(&core.background) as Arc<dyn BackgroundWork>),
            passwords: passwords.clone().map(|file| file as Arc<dyn Passwords>),
            backends: Some(Arc::new(Behind { core: Arc::clone(core), writes: setup.write_through })),
        };
        let running = bound.serve(setup.protocol, service, clock, self.entropy.draw());
        Ok(Listener { running: running.map_err(StartError::Thread)?, setup, passwords })
    }

    /// Makes the counters of the listeners known.
    fn announce(&self, core: &Core) {
        let running = self.serving.iter().map(|listener| &listener.running);
        core.set_meters(running.map(|running| (running.address().clone(), running.meter())).collect());
    }
}

impl Ending {
    fn wait(self) {
        self.thread.join().expect("it only waits");
    }
}

impl Ready {
    fn new(core: &Core, setup: &ListenerSetup, bound: Bound) -> Result<Self, StartError> {
        Self::with_tenants(core, core.tenancy.as_deref(), setup, bound)
    }

    /// Reads the files of a listener; `tenancy` tells the tenants of its users.
    fn with_tenants(
        core: &Core,
        tenancy: Option<&TenancySetup>,
        setup: &ListenerSetup,
        mut bound: Bound,
    ) -> Result<Self, StartError> {
        let open = |path| PasswordFile::open(path, routes::user_tenants(tenancy, setup)).map(Arc::new);
        let passwords = setup.auth_file.as_deref().map(open).transpose()?;
        if let Some(files) = setup.tls.clone() {
            let tls = Arc::new(Tls::of_listener(files)?);
            core.certificates.add(bound.address().to_string(), &tls);
            bound = bound.over_tls(tls);
        }
        Ok(Self { setup: setup.clone(), bound, passwords })
    }
}

/// Returns the counting of a listener's batches; none if they never count.
fn batches(core: &Core, setup: &ListenerSetup) -> Option<BatchCounting> {
    let always = match setup.requests {
        BatchMode::Never => return None,
        BatchMode::Auto => false,
        BatchMode::Always => true,
    };
    let class = setup.class.as_deref().and_then(|name| core.telemetry.slos().class_number(name));
    Some(BatchCounting { batches: Arc::clone(&core.batches), always, class })
}

/// Waits until a listener that was told to stop has ended.
fn end(listener: Running) {
    if let Err(error) = listener.join() {
        tracing::error!("a listener ended badly: {error}");
    }
}
