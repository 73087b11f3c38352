//! The sockets and threads of a listener: binding, starting, joining.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use socket2::{Domain, Socket, Type};
use thiserror::Error;

use super::address::Address;
use super::clock::Clock;
use super::conversation::Conversations;
use super::meter::Meter;
use super::options::{ListenerOptions, OptionsError};
use super::protocols::Protocol;
use super::shared::{Service, Shared};
use super::sockets::{Signal, Sockets};
use super::system::{Epoll, Wake};
use super::thread::{Thread, WAKE_TOKENS};
use super::thread_group::{ThreadGroup, Threads};
use super::tls::{ServerTls, TlsSockets};
use super::unix::{self, SocketFile};

/// Most connections per socket that the system queues until they are accepted: memcached's default.
const BACKLOG: i32 = 1024;

/// The bound sockets of a listener that is not serving yet. New connections wait in the sockets.
#[derive(Debug)]
pub struct Bound {
    options: ListenerOptions,
    sockets: Vec<Socket>,
    file: Option<SocketFile>,
    tls: Option<Arc<dyn ServerTls>>,
}

/// The error of a listener whose socket could not be bound.
#[derive(Debug, Error)]
pub enum BindError {
    /// An option of the listener is invalid.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The address is in use, is not an address of this machine, or its port requires privileges;
    /// or the path of a UNIX socket is in use by a process that listens or by a file that is not a
    /// socket, or cannot be written to.
    #[error("a listener could not bind {address}: {error}; choose another address or stop what uses it")]
    Bind {
        /// The address that could not be bound.
        address: Address,
        /// The system's error for the address.
        error: io::Error,
    },
}

impl Bound {
    /// Binds one socket for each thread, or a single UNIX socket that all threads accept from. The
    /// file of a UNIX socket is removed when the returned value, or the listener it becomes, is
    /// dropped.
    ///
    /// # Errors
    /// If an option is out of range or the address cannot be bound.
    pub fn bind(options: ListenerOptions) -> Result<Self, BindError> {
        options.validate()?;
        match bind_all(&options.bind, options.threads) {
            Ok((bind, sockets, file)) => {
                Ok(Self { options: ListenerOptions { bind, ..options }, sockets, file, tls: None })
            }
            Err(error) => Err(BindError::Bind { address: options.bind, error }),
        }
    }

    /// Takes a socket that listens at the address of the options already, opened by another
    /// process. All threads accept from it. The file of a UNIX socket belongs to that process: it
    /// stays, with its permissions.
    ///
    /// # Errors
    /// If an option is out of range or the system has no free file descriptor.
    pub fn passed(options: ListenerOptions, socket: OwnedFd) -> Result<Self, BindError> {
        options.validate()?;
        let first = Socket::from(socket);
        match first.set_nonblocking(true).and_then(|()| shared(first, options.threads)) {
            Ok(sockets) => Ok(Self { options, sockets, file: None, tls: None }),
            Err(error) => Err(BindError::Bind { address: options.bind, error }),
        }
    }

    /// Returns the bound address, with the port that the system chose if it was 0.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.options.bind
    }

    /// Makes TLS the only way to speak with the listener.
    #[must_use]
    pub fn over_tls(self, tls: Arc<dyn ServerTls>) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Starts the threads, for clients of `protocol`. They serve until the returned value is
    /// stopped or dropped. `seed` starts the random sequence of Redis's `RANDOMKEY`.
    ///
    /// # Errors
    /// If the system cannot create a thread or an event queue.
    pub fn serve(
        self,
        protocol: Protocol,
        service: Service,
        clock: Arc<dyn Clock>,
        seed: u64,
    ) -> io::Result<Running> {
        (protocol.entry().serve)(self, service, clock, seed)
    }

    /// Starts the threads on plain sockets, or over TLS if it is configured.
    pub(super) fn speak<P: Conversations>(
        self,
        protocol: P,
        service: Service,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Running> {
        match self.tls.clone() {
            None => self.start(protocol, service, clock, |sockets| sockets),
            Some(tls) => {
                self.start(protocol, service, clock, |sockets| TlsSockets::new(sockets, Arc::clone(&tls)))
            }
        }
    }

    /// Starts the threads on sockets that `over` makes of the system's.
    fn start<P: Conversations, S>(
        self,
        protocol: P,
        service: Service,
        clock: Arc<dyn Clock>,
        over: impl Fn(Epoll) -> S,
    ) -> io::Result<Running>
    where
        S: Sockets<Socket: Send> + Send + 'static,
    {
        let protocol = Arc::new(protocol);
        let Self { options, sockets, file, tls: _ } = self;
        let rounds = options.rounds;
        let shared = Arc::new(Shared::new(options, service, clock));
        let wakes = sockets.iter().map(|_| Wake::new()).collect::<io::Result<Vec<_>>>()?;
        let signals = wakes.iter().map(|wake| Arc::clone(wake) as Arc<dyn Signal>);
        let group = Arc::new(ThreadGroup::new(signals, WAKE_TOKENS));
        let thread = |(number, (socket, wake))| {
            let (protocol, shared, group) = (Arc::clone(&protocol), Arc::clone(&shared), Arc::clone(&group));
            Ok(Thread::new(protocol, number, shared, group, over(Epoll::new(socket, wake, rounds)?)))
        };
        let threads: Vec<Thread<P, S>> =
            sockets.into_iter().zip(wakes).enumerate().map(thread).collect::<io::Result<_>>()?;
        let mut running = Running { shared, group, threads: Vec::new(), _file: file };
        let spawn = |(number, thread): (usize, Thread<P, S>)| {
            let name = format!("{}-{number}", P::THREADS);
            std::thread::Builder::new().name(name).spawn(move || thread.run())
        };
        for thread in threads.into_iter().enumerate() {
            running.threads.push(spawn(thread)?);
        }
        Ok(running)
    }
}

/// Binds `count` sockets, over which the system spreads connections. Returns them with the address,
/// whose port the system may have chosen.
fn bind_all(bind: &Address, count: usize) -> io::Result<(Address, Vec<Socket>, Option<SocketFile>)> {
    let (address, sockets, file) = match bind {
        Address::Tcp(address) => {
            let (address, sockets) = bind_tcp(*address, count)?;
            (Address::Tcp(address), sockets, None)
        }
        Address::Unix(place) => {
            let (first, file) = unix::bind(place)?;
            (bind.clone(), shared(first, count)?, Some(file))
        }
    };
    sockets.iter().try_for_each(|socket| socket.listen(BACKLOG))?;
    Ok((address, sockets, file))
}

/// Returns `count` descriptors of one socket.
fn shared(first: Socket, count: usize) -> io::Result<Vec<Socket>> {
    let mut sockets = vec![first];
    for _ in 1..count {
        sockets.push(sockets[0].try_clone()?);
    }
    Ok(sockets)
}

/// Binds `count` sockets to one address, over which the system spreads connections.
///
/// Sockets that share a port admit any other process of the same user that wants to share it, so a
/// second node would go unnoticed and take half of the connections. Hence the first socket is bound
/// exclusively, which fails if another process uses the port, and permits sharing only afterwards.
fn bind_tcp(address: SocketAddr, count: usize) -> io::Result<(SocketAddr, Vec<Socket>)> {
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
    Ok((address, sockets))
}

fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(socket2::Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    Ok(socket)
}

/// A listener that is serving. Dropping it stops the listener, without waiting.
pub struct Running {
    shared: Arc<Shared>,
    group: Arc<dyn Threads + Send + Sync>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    /// The file of a UNIX socket, removed once no client is served any more.
    _file: Option<SocketFile>,
}

impl Running {
    /// Returns the bound address, with the port that the system chose if it was 0.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.shared.options.bind
    }

    /// Returns a reader of the listener's counters.
    #[must_use]
    pub fn meter(&self) -> Meter {
        Meter(Arc::downgrade(&self.shared))
    }

    /// Asks every thread to answer, which it does between two turns of its clients.
    pub fn check(&self) {
        self.group.check();
    }

    /// Returns true if all threads have answered the last [check](Self::check), or there was none.
    #[must_use]
    pub fn is_checked(&self) -> bool {
        self.group.is_checked()
    }

    /// Tells the threads to stop: they answer what clients have sent, and end after the
    /// `drain_timeout` at the latest.
    pub fn stop(&self) {
        self.group.stop();
    }

    /// Waits until all threads have ended; call [`stop`](Self::stop) first.
    ///
    /// # Errors
    /// If a thread failed or panicked.
    pub fn join(mut self) -> io::Result<()> {
        for thread in std::mem::take(&mut self.threads) {
            thread.join().map_err(|_| io::Error::other("a listener's thread panicked"))??;
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}
