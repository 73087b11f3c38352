//! Listening sockets that another process opened for this node, such as systemd.
//!
//! A socket belongs to the listener that is configured to listen at its address. Names would not
//! do: systemd gives all sockets of a unit the unit's name. And since the address is the configured
//! one, the checks of the configuration, such as a password beyond loopback, hold for it.

use std::io;
use std::os::fd::OwnedFd;

use sherwood_listener::Address;
use socket2::{SockAddr, Socket, Type};
use thiserror::Error;

/// Sockets passed to a node that is not started yet. The default is none.
#[derive(Debug, Default)]
pub struct PassedSockets(Vec<PassedSocket>);

#[derive(Debug)]
struct PassedSocket {
    /// The name that the other process gave it; of any form.
    name: String,
    address: SockAddr,
    socket: Socket,
}

/// The error of a passed socket that the node cannot use.
#[derive(Debug, Error)]
pub enum PassedError {
    /// It is no listening TCP or UNIX stream socket.
    #[error(
        "the passed socket {name:?} is {found}; it must be a listening stream socket: use ListenStream= in the socket's \
         unit, and Accept=no"
    )]
    Unusable {
        /// The socket's name.
        name: String,
        /// The kind of file or socket that it is, or the error of the system.
        found: String,
    },
    /// No listener, or none without a socket of its own, is configured at its address.
    #[error(
        "the socket {name:?} was passed for {address}, where no listener that lacks a socket is configured; configured are \
         {configured}: make ListenStream= of the socket's unit and the configured bind equal"
    )]
    Unknown {
        /// The socket's name.
        name: String,
        /// Address of the socket.
        address: String,
        /// All configured addresses.
        configured: String,
    },
}

impl PassedSockets {
    /// Takes the sockets, each with the name that the other process gave it.
    ///
    /// # Errors
    /// Fails at the first that does not listen on a TCP port or the path of a UNIX socket.
    pub fn new(sockets: impl IntoIterator<Item = (String, OwnedFd)>) -> Result<Self, PassedError> {
        let check = |(name, socket): (String, OwnedFd)| {
            let socket = Socket::from(socket);
            match usable_address(&socket) {
                Ok(address) => Ok(PassedSocket { name, address, socket }),
                Err(found) => Err(PassedError::Unusable { name, found }),
            }
        };
        sockets.into_iter().map(check).collect::<Result<_, _>>().map(Self)
    }

    /// Takes the socket that listens at `address`, if there is one.
    pub fn take(&mut self, address: &Address) -> Option<OwnedFd> {
        let found = self.0.iter().position(|passed| is_at(&passed.address, address))?;
        Some(self.0.remove(found).socket.into())
    }

    /// Checks that all sockets have been taken; `configured` are the node's addresses.
    ///
    /// # Errors
    /// Fails at the first that is left.
    pub fn finish(self, configured: impl FnOnce() -> Vec<String>) -> Result<(), PassedError> {
        let Some(PassedSocket { name, address, .. }) = self.0.into_iter().next() else { return Ok(()) };
        Err(PassedError::Unknown { name, address: shown(&address), configured: configured().join(", ") })
    }
}

/// Returns the address of a listening stream socket, or a description of what it is instead.
fn usable_address(socket: &Socket) -> Result<SockAddr, String> {
    let failed = |error: io::Error| match error.raw_os_error() {
        Some(libc::ENOTSOCK) => "no socket".to_owned(),
        _ => format!("unusable ({error})"),
    };
    let address = socket.local_addr().map_err(failed)?;
    if socket.r#type().map_err(failed)? != Type::STREAM {
        return Err("of another type".to_owned());
    }
    if !socket.is_listener().map_err(failed)? {
        return Err("not listening".to_owned());
    }
    let has_place = address.as_socket().is_some() || address.as_pathname().is_some();
    if has_place { Ok(address) } else { Err("without a TCP port or a path".to_owned()) }
}

fn is_at(socket: &SockAddr, address: &Address) -> bool {
    match address {
        Address::Tcp(address) => socket.as_socket().as_ref() == Some(address),
        Address::Unix(place) => socket.as_pathname() == Some(&place.path),
    }
}

fn shown(address: &SockAddr) -> String {
    match (address.as_socket(), address.as_pathname()) {
        (Some(address), _) => address.to_string(),
        (None, Some(path)) => format!("unix:{}", path.display()),
        (None, None) => "no address".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::Path;

    use sherwood_listener::UnixSocket;

    use super::*;

    fn at(path: &Path) -> Address {
        Address::Unix(UnixSocket { path: path.to_owned(), permissions: 0o600 })
    }

    fn refusal(socket: OwnedFd) -> String {
        PassedSockets::new([("odd".to_owned(), socket)]).unwrap_err().to_string()
    }

    #[test]
    fn passed_socket_is_taken_once_by_its_address() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::from(tcp.local_addr().unwrap());
        let sockets = [
            ("a".to_owned(), OwnedFd::from(tcp)),
            ("b".to_owned(), UnixListener::bind(&path).unwrap().into()),
        ];
        let mut passed = PassedSockets::new(sockets).unwrap();
        assert!(passed.take(&at(&directory.path().join("other"))).is_none());
        assert!(passed.take(&address).is_some() && passed.take(&address).is_none());
        assert!(passed.take(&at(&path)).is_some());
        passed.finish(Vec::new).unwrap();
    }

    #[test]
    fn socket_that_no_listener_takes_is_an_error_with_the_configured_addresses() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap().to_string();
        let passed = PassedSockets::new([("sherwood.socket".to_owned(), tcp.into())]).unwrap();
        let configured = || vec!["memcached 127.0.0.1:1".to_owned(), "admin 127.0.0.1:2".to_owned()];
        let error = passed.finish(configured).unwrap_err().to_string();
        for part in ["\"sherwood.socket\"", &address, "memcached 127.0.0.1:1, admin 127.0.0.1:2"] {
            assert!(error.contains(part), "{part} in {error}");
        }
    }

    #[test]
    fn descriptor_that_is_no_listening_stream_socket_is_refused_with_its_kind() {
        let listening = TcpListener::bind("127.0.0.1:0").unwrap();
        let connected = TcpStream::connect(listening.local_addr().unwrap()).unwrap();
        let file = tempfile::tempfile().unwrap();
        assert!(refusal(file.into()).contains("\"odd\" is no socket"));
        assert!(refusal(UdpSocket::bind("127.0.0.1:0").unwrap().into()).contains("of another type"));
        assert!(refusal(connected.into()).contains("not listening"));
        assert!(refusal(UnixStream::pair().unwrap().0.into()).contains("not listening"));
    }
}
