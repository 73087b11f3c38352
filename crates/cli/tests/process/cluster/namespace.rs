//! Network namespaces, each with the processes of one machine.

use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread;

type Work = Box<dyn FnOnce() + Send>;

/// A network namespace. It lasts until its thread and the processes in it have ended, and its
/// devices with it.
pub(super) struct Namespace {
    work: Sender<Work>,
    /// The thread, whose namespace it is.
    id: libc::pid_t,
}

impl Namespace {
    /// Creates a namespace with a loopback device; none where this is not permitted.
    pub(super) fn new() -> Option<Self> {
        let (work, received) = channel::<Work>();
        let (told, id) = channel();
        thread::spawn(move || {
            // SAFETY: takes no pointers; the namespace of this thread alone changes.
            let (is_new, id) = unsafe { (libc::unshare(libc::CLONE_NEWNET) == 0, libc::gettid()) };
            told.send(is_new.then_some(id)).unwrap();
            if is_new {
                received.into_iter().for_each(|work| work());
            }
        });
        let id = id.recv().unwrap()?;
        let namespace = Self { work, id };
        namespace.ip("link set lo up").then_some(namespace)
    }

    /// Runs work in the namespace. Threads and processes that it starts are in the namespace, too.
    pub(super) fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = channel();
        self.work.send(Box::new(move || drop(done.send(work())))).unwrap();
        result.recv().expect("the work does not panic")
    }

    /// Runs `ip` with these arguments; returns true if it succeeds.
    fn ip(&self, arguments: &str) -> bool {
        let arguments = arguments.to_owned();
        // Debian has it where only root looks.
        let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
        let run = move || Command::new("ip").args(arguments.split(' ')).env("PATH", path).output();
        self.run(run).is_ok_and(|output| output.status.success())
    }

    /// Runs `ip`, which has to succeed.
    pub(super) fn must(&self, arguments: &str) {
        assert!(self.ip(arguments), "ip {arguments}");
    }

    /// Adds a switch to which other namespaces are connected.
    pub(super) fn add_switch(&self, name: &str) -> bool {
        self.ip(&format!("link add {name} type bridge")) && self.ip(&format!("link set {name} up"))
    }

    /// Connects `other` to a switch of this namespace by a cable, whose end there has this address,
    /// and whose end here is the device `cable`.
    pub(super) fn connect(&self, switch: &str, cable: &str, other: &Self, address: &str) {
        let id = other.id;
        self.must(&format!("link add {cable} type veth peer name {switch} netns {id}"));
        self.must(&format!("link set {cable} master {switch}"));
        self.must(&format!("link set {cable} up"));
        other.must(&format!("address add {address}/24 dev {switch}"));
        other.must(&format!("link set {switch} up"));
    }
}
