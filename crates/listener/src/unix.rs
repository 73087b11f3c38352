//! UNIX sockets: creation, permissions and removal of the socket's file.
//!
//! A process that is killed leaves its file behind, and the next one cannot bind. But the file may
//! also belong to a process that still listens, which its removal would silently cut off. So a
//! connection is tried first: the file is removed only if it is a socket that no process listens
//! on. If two nodes start with the same path at the same moment, both may find the old file unused,
//! and the later one wins.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

use super::address::UnixSocket;

/// The file of a UNIX socket, removed when this value is dropped unless another file has replaced
/// it.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and inode of the file, which distinguish it from a later file of the same name.
    identity: (u64, u64),
}

/// Returns a UNIX socket bound to `place` that does not listen yet. No client can connect before it
/// listens, so setting its permissions after binding is safe.
///
/// # Errors
/// If a process already listens there ([`io::ErrorKind::AddrInUse`]), the file there is not a
/// socket ([`io::ErrorKind::AlreadyExists`]), or a system call fails.
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

/// Removes the file of a UNIX socket if no process listens on it.
fn remove_dead(path: &Path, address: &SockAddr) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket is there"));
        }
        Ok(_) => {}
    }
    // Non-blocking: a full backlog also shows that a process listens.
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
            // A failure is ignored: the next process to bind removes the file.
            let _ = fs::remove_file(&self.path);
        }
    }
}
