//! UNIX sockets: a file that has to be made, guarded and cleared away.
//!
//! A process that is killed leaves its file, and the next one could not bind. But a file may also
//! belong to somebody who listens, and taking it away would cut that one off without a word. So the
//! file is tried first: only one that nobody listens behind is removed, and nothing but a socket
//! ever is. Of two nodes that start at one path in the same moment both may find the old file dead,
//! and the later one wins.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

use super::address::UnixSocket;

/// A socket's file, which is removed with this value unless another has taken its place.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and number: what tells it from a later file of the same name.
    identity: (u64, u64),
}

/// A socket bound to `place` that does not listen yet. Nobody can connect before it does, so its
/// permissions come in time.
///
/// # Errors
/// When somebody listens there already ([`io::ErrorKind::AddrInUse`]), the file there is no socket
/// ([`io::ErrorKind::AlreadyExists`]), or the system does not let us.
pub(super) fn bind(place: &UnixSocket) -> io::Result<(Socket, SocketFile)> {
    let UnixSocket { path, permissions } = place;
    let address = SockAddr::unix(path)?;
    remove_dead(path, &address)?;
    let socket = socket()?;
    socket.bind(&address)?;
    let file = SocketFile { path: path.clone(), identity: identity(path)? };
    fs::set_permissions(path, Permissions::from_mode(*permissions))?;
    Ok((socket, file))
}

/// Removes a socket's file that nobody listens behind.
fn remove_dead(path: &Path, address: &SockAddr) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket is there"));
        }
        Ok(_) => {}
    }
    // Not waiting: where many knock, somebody listens.
    match socket()?.connect(address) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
        _ => Err(io::Error::new(io::ErrorKind::AddrInUse, "somebody listens there")),
    }
}

fn socket() -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let file = fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            // Left behind, it would be removed by the next one to bind.
            let _ = fs::remove_file(&self.path);
        }
    }
}
