//! A NATS server of one test, as Debian packages it.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use crate::wait::eventually;

/// A server that ends with its value.
pub(crate) struct Bus {
    pub(crate) address: SocketAddr,
    child: Child,
}

impl Bus {
    pub(crate) fn start() -> Self {
        // The port is free now, and few ports are opened beside it.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        Self { address, child: spawn(address) }
    }

    /// Ends the server.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts the server again at its address.
    pub(crate) fn restart(&mut self) {
        self.child = spawn(self.address);
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(address: SocketAddr) -> Child {
    let mut command = Command::new("nats-server");
    command.args(["--addr", "127.0.0.1", "--port", &address.port().to_string()]);
    // Debian has it where only root looks.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin")).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().expect("nats-server is installed: make test installs it");
    eventually("the bus listens", || TcpStream::connect(address).is_ok());
    child
}
