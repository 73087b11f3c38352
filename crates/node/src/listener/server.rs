//! Sockets and threads: binding, accepting, draining.

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, Type};
use thiserror::Error;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::{Id, JoinSet};

use super::connection;
use super::conversation::{Conversation, Protocol};
use super::counters::Counts;
use super::memcached::Memcached;
use super::options::{MemcachedOptions, OptionsError};
use super::redis::Redis;
use super::shared::{Connections, Place, Service, Shared};
use crate::clock::Clock;

/// Connections the system keeps for us, per socket, until they are accepted: memcached's default.
const BACKLOG: i32 = 1024;
/// How long nothing is accepted after the system could not, for want of file descriptors as a rule.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A listener's sockets: bound, and connections wait in them to be served.
#[derive(Debug)]
pub struct Bound {
    options: MemcachedOptions,
    address: SocketAddr,
    sockets: Vec<std::net::TcpListener>,
}

/// Why a listener could not be bound.
#[derive(Debug, Error)]
pub enum BindError {
    /// Options that make no sense.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The address is taken, or is none of this machine's, or its port needs privileges.
    #[error("a listener could not bind {address}: {error}; choose another address or stop what uses it")]
    Bind {
        /// Where it was to listen.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
}

impl Bound {
    /// Binds one socket for each thread.
    ///
    /// # Errors
    /// When an option is out of range, or the address cannot be had.
    pub fn bind(options: MemcachedOptions) -> Result<Self, BindError> {
        options.validate()?;
        let refuse = |error| BindError::Bind { address: options.bind, error };
        let sockets = bind_all(options.bind, options.threads).map_err(refuse)?;
        let address = sockets[0].local_addr().map_err(refuse)?;
        Ok(Self { options: MemcachedOptions { bind: address, ..options }, address, sockets })
    }

    /// Where it listens, with the port the system chose if it was asked to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts the threads, which serve until `stop` is true or its sender is gone.
    ///
    /// # Errors
    /// When the system has no thread or no event queue for us.
    pub fn serve(self, service: Service, clock: Clock, stop: watch::Receiver<bool>) -> io::Result<Running> {
        self.speak(Memcached, service, clock, stop)
    }

    /// The same for clients of Redis. `seed` begins the sequence in which keys are drawn.
    ///
    /// # Errors
    /// As [`Self::serve`].
    pub fn serve_redis(
        self,
        service: Service,
        clock: Clock,
        seed: u64,
        stop: watch::Receiver<bool>,
    ) -> io::Result<Running> {
        self.speak(Redis::new(seed), service, clock, stop)
    }

    /// The same in any protocol.
    pub(super) fn speak<P: Protocol>(
        self,
        protocol: P,
        service: Service,
        clock: Clock,
        stop: watch::Receiver<bool>,
    ) -> io::Result<Running> {
        let protocol = Arc::new(protocol);
        let Self { options, address, sockets } = self;
        let shared = Arc::new(Shared::new(options, service, clock));
        let runtimes: Vec<Runtime> = sockets
            .iter()
            .map(|_| Builder::new_current_thread().enable_all().build())
            .collect::<io::Result<_>>()?;
        let threads = sockets
            .into_iter()
            .zip(runtimes)
            .enumerate()
            .map(|(number, (socket, runtime))| {
                let (protocol, shared) = (Arc::clone(&protocol), Arc::clone(&shared));
                let thread = Thread { protocol, number, shared, stop: stop.clone() };
                std::thread::Builder::new()
                    .name(format!("{}-{number}", P::THREADS))
                    .spawn(move || runtime.block_on(thread.run(socket)))
            })
            .collect::<io::Result<_>>()?;
        Ok(Running { address, shared, threads })
    }
}

/// Sockets on one address that the system spreads connections over.
///
/// Sockets that share a port let in anybody of the same user who wants to share it, so a second node would go unnoticed
/// and take half of the connections. Hence the first one binds alone, which fails when anybody is there, and agrees to
/// share only then.
fn bind_all(address: SocketAddr, count: usize) -> io::Result<Vec<std::net::TcpListener>> {
    let first = socket(address)?;
    first.bind(&address.into())?;
    first.set_reuse_port(true)?;
    let address = first.local_addr()?.as_socket().unwrap_or(address);
    let mut sockets = vec![first];
    for _ in 1..count {
        let other = socket(address)?;
        other.set_reuse_port(true)?;
        other.bind(&address.into())?;
        sockets.push(other);
    }
    sockets.into_iter().map(|socket| socket.listen(BACKLOG).map(|()| socket.into())).collect()
}

fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(socket2::Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    Ok(socket)
}

/// A listener that serves.
pub struct Running {
    address: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Running {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it counted since the start, over all threads.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    /// Connections that are open now.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections.now()
    }

    /// Connections that were turned away because there were too many.
    #[must_use]
    pub fn rejected(&self) -> u64 {
        self.shared.connections.rejected()
    }

    /// Waits until all threads have ended, which they do some time after they were told to stop: at most the
    /// `drain_timeout`.
    ///
    /// # Errors
    /// When a thread ended for another reason.
    pub fn join(self) -> io::Result<()> {
        for thread in self.threads {
            thread.join().map_err(|_| io::Error::other("a listener's thread panicked"))??;
        }
        Ok(())
    }
}

/// One thread of a listener.
struct Thread<P> {
    protocol: Arc<P>,
    number: usize,
    shared: Arc<Shared>,
    stop: watch::Receiver<bool>,
}

impl<P: Protocol> Thread<P> {
    async fn run(self, socket: std::net::TcpListener) -> io::Result<()> {
        let listener = TcpListener::from_std(socket)?;
        let mut clients = Clients::default();
        let mut stop = self.stop.clone();
        let mut told_to_stop = pin!(async { stop.wait_for(|&stop| stop).await.is_ok() });
        loop {
            tokio::select! {
                _ = &mut told_to_stop => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => self.welcome(stream, &mut clients),
                    Err(error) => {
                        tracing::warn!(%error, "the {} listener cannot accept connections", P::NAME);
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                () = clients.one_ended(), if !clients.tasks.is_empty() => {}
            }
        }
        drop(listener);
        clients.drain(self.shared.options.drain_timeout).await;
        Ok(())
    }

    fn welcome(&self, stream: TcpStream, clients: &mut Clients) {
        let Some(place) = Connections::open(&self.shared) else {
            // Whether it arrives or not, the connection is closed.
            let _ = stream.try_write(P::TOO_MANY);
            return;
        };
        // Both only make things better; a connection without them works.
        let _ = stream.set_nodelay(true);
        let _ = SockRef::from(&stream).set_keepalive(true);
        let conversation = self.protocol.open(&self.shared, self.number);
        clients.serve(conversation, stream, place, Arc::clone(&self.shared), self.number);
    }
}

/// The connections of a thread.
#[derive(Default)]
struct Clients {
    tasks: JoinSet<()>,
    sockets: BTreeMap<Id, Weak<OwnedWriteHalf>>,
}

impl Clients {
    fn serve<C: Conversation>(
        &mut self,
        conversation: C,
        stream: TcpStream,
        place: Place,
        shared: Arc<Shared>,
        thread: usize,
    ) {
        let (read, write) = stream.into_split();
        let write = Arc::new(write);
        let socket = Arc::downgrade(&write);
        let task = self.tasks.spawn(async move {
            connection::serve(conversation, read, write, shared, thread).await;
            drop(place);
        });
        self.sockets.insert(task.id(), socket);
    }

    /// Waits until a connection has ended.
    async fn one_ended(&mut self) {
        let id = match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => id,
            Some(Err(error)) => {
                tracing::error!(%error, "a connection ended in a panic");
                error.id()
            }
            None => return,
        };
        self.sockets.remove(&id);
    }

    /// Lets every client have the answers to what it has sent, and closes. Nothing more is read from anybody: to the
    /// connections it looks as if their clients had finished, and they end as they always do.
    async fn drain(&mut self, patience: Duration) {
        for socket in self.sockets.values().filter_map(Weak::upgrade) {
            // One that is gone already needs no shutting down.
            let _ = SockRef::from(socket.as_ref().as_ref()).shutdown(Shutdown::Read);
        }
        let all_ended = async {
            while !self.tasks.is_empty() {
                self.one_ended().await;
            }
        };
        if tokio::time::timeout(patience, all_ended).await.is_err() {
            tracing::warn!(connections = self.tasks.len(), "connections were cut off at shutdown");
        }
    }
}
