//! Three nodes, a NATS server and a Redis server, each on a machine of its own where the test may
//! have network namespaces; otherwise on this one.

use std::fs::{self, Permissions};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use tempfile::TempDir;

use super::namespace::Namespace;
use crate::page::free_port;
use crate::support::{Server, TIMEOUT};

/// Names of the nodes.
pub(super) const NODES: [&str; 3] = ["a", "b", "c"];
const PASSWORD: &str = "correct horse battery staple";

/// The machines and the servers.
pub(super) struct World {
    /// The network between the machines; none on one machine.
    switches: Option<Namespace>,
    bus_machine: Arc<Machine>,
    bus_address: SocketAddr,
    bus: Daemon,
    pub(super) nodes: Vec<Node>,
    _store: Daemon,
    _directory: TempDir,
}

/// A node on its machine.
pub(super) struct Node {
    machine: Arc<Machine>,
    _server: Server,
    /// Addresses on the machine's loopback device.
    pub(super) redis: String,
    pub(super) admin: String,
}

/// A machine: a namespace, or this one.
struct Machine(Option<Namespace>);

impl Machine {
    fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        match &self.0 {
            Some(namespace) => namespace.run(work),
            None => work(),
        }
    }
}

impl Node {
    /// Runs work on the node's machine.
    pub(super) fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        self.machine.run(work)
    }
}

/// A server that ends with its value.
struct Daemon(Child);

impl Daemon {
    fn start(machine: &Machine, address: SocketAddr, program: &str, arguments: Vec<String>) -> Self {
        // Debian has some servers where only root looks.
        let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new(program);
        command.args(arguments).env("PATH", path).stdout(Stdio::null()).stderr(Stdio::null());
        let started = machine.run(move || {
            let child = command.spawn();
            let start = Instant::now();
            while child.is_ok() && TcpStream::connect(address).is_err() {
                assert!(start.elapsed() < TIMEOUT, "nothing listens at {address}");
            }
            child
        });
        Self(started.unwrap_or_else(|error| panic!("{program}: {error}; `make test` installs it")))
    }

    fn signal(&self, signal: libc::c_int) {
        let pid = libc::pid_t::try_from(self.0.id()).unwrap();
        // SAFETY: sends a signal to a child that has not been waited for, so the id is still valid.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl World {
    /// Starts all servers. `backend` are further keys of the backend `catalog`.
    pub(super) fn start(backend: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (switches, machines) = match network() {
            Some((switches, machines)) => (Some(switches), machines.map(|machine| Machine(Some(machine)))),
            None => (None, [(); 5].map(|()| Machine(None))),
        };
        let [a, b, c, bus_machine, store_machine] = machines.map(Arc::new);
        let address = |host: &str| -> SocketAddr {
            let host = if switches.is_some() { host } else { "127.0.0.1" };
            format!("{host}:{}", free_port()).parse().unwrap()
        };
        let (bus_address, store_address) = (address("10.66.2.100"), address("10.66.1.100"));
        let bus = Daemon::start(&bus_machine, bus_address, "nats-server", bus_arguments(bus_address));
        let redis = format!(
            "--bind {} --port {} --protected-mode no --save",
            store_address.ip(),
            store_address.port()
        );
        let arguments = redis.split(' ').map(str::to_owned).chain([String::new()]).collect();
        let store = Daemon::start(&store_machine, store_address, "redis-server", arguments);
        let node = |(name, machine): (&str, Arc<Machine>)| {
            let path = configure(directory.path(), name, backend, (bus_address, store_address));
            let server = machine.run(move || Server::start(&["--config", &path]));
            let (redis, admin) = (server.address("redis"), server.address("admin"));
            Node { machine, _server: server, redis, admin }
        };
        let nodes = NODES.into_iter().zip([a, b, c]).map(node).collect();
        Self { switches, bus_machine, bus_address, bus, nodes, _store: store, _directory: directory }
    }

    /// Stops the NATS server without ending it.
    pub(super) fn stop_bus(&self) {
        self.bus.signal(libc::SIGSTOP);
    }

    /// Lets the NATS server go on.
    pub(super) fn continue_bus(&self) {
        self.bus.signal(libc::SIGCONT);
    }

    /// Kills the NATS server.
    pub(super) fn kill_bus(&mut self) {
        self.bus.0.kill().unwrap();
        self.bus.0.wait().unwrap();
    }

    /// Starts the NATS server again.
    pub(super) fn restart_bus(&mut self) {
        let arguments = bus_arguments(self.bus_address);
        self.bus = Daemon::start(&self.bus_machine, self.bus_address, "nats-server", arguments);
    }

    /// Pulls a machine's cable to the bus: of the node with this name, or `bus` for that of the
    /// NATS server. On one machine, the server is stopped instead.
    pub(super) fn cut(&self, machine: &str) {
        match &self.switches {
            Some(switches) => switches.must(&format!("link set bus-{machine} down")),
            None => self.stop_bus(),
        }
    }

    /// Plugs a cable in again.
    pub(super) fn mend(&self, machine: &str) {
        match &self.switches {
            Some(switches) => switches.must(&format!("link set bus-{machine} up")),
            None => self.continue_bus(),
        }
    }
}

/// Creates the machines of three nodes, the bus and the store, with one network for the bus and
/// one for the store; none where namespaces are not permitted.
fn network() -> Option<(Namespace, [Namespace; 5])> {
    let switches = Namespace::new()?;
    if !(switches.add_switch("bus") && switches.add_switch("store")) {
        return None;
    }
    let mut machines = Vec::new();
    for (number, name) in NODES.into_iter().enumerate() {
        let machine = Namespace::new()?;
        switches.connect("bus", &format!("bus-{name}"), &machine, &format!("10.66.2.{}", number + 1));
        switches.connect("store", &format!("store-{name}"), &machine, &format!("10.66.1.{}", number + 1));
        machines.push(machine);
    }
    let (bus, store) = (Namespace::new()?, Namespace::new()?);
    switches.connect("bus", "bus-bus", &bus, "10.66.2.100");
    switches.connect("store", "store-store", &store, "10.66.1.100");
    machines.extend([bus, store]);
    Some((switches, machines.try_into().ok()?))
}

fn bus_arguments(address: SocketAddr) -> Vec<String> {
    let (ip, port) = (address.ip().to_string(), address.port().to_string());
    ["--addr", &ip, "--port", &port, "--user", "sherwood", "--pass", PASSWORD].map(str::to_owned).into()
}

/// Writes the configuration of a node, and the password of the bus; returns the path.
fn configure(directory: &Path, name: &str, backend: &str, servers: (SocketAddr, SocketAddr)) -> String {
    let (bus, store) = servers;
    let password = directory.join("password");
    fs::write(&password, PASSWORD).unwrap();
    fs::set_permissions(&password, Permissions::from_mode(0o600)).unwrap();
    let text = format!(
        r#"
        [memory]
        total = "16MiB"
        [server]
        threads = 1
        [admin]
        bind = "127.0.0.1:0"
        [cluster]
        name = "test"
        node = "{name}"
        nodes = {NODES:?}
        bus = {{ servers = ["nats://{bus}"], user = "sherwood", password_file = {password:?} }}
        [[listener]]
        protocol = "redis"
        bind = "127.0.0.1:0"
        backend = "catalog"
        mode = "write-through"
        [[backend]]
        name = "catalog"
        store = {{ kind = "redis", address = "{store}" }}
        {backend}
        "#
    );
    let path = directory.join(format!("{name}.toml"));
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}
