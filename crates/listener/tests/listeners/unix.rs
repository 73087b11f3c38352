//! Listeners on UNIX sockets: permissions, and creation and removal of the socket's file.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use sherwood_listener::{Address, BindError, Bound, ListenerOptions, UnixSocket};

use crate::support::{Server, options};
use crate::wait::TIMEOUT;

fn at(path: &Path) -> ListenerOptions {
    let bind = Address::Unix(UnixSocket { path: path.to_owned(), permissions: 0o640 });
    ListenerOptions { bind, threads: 4, ..options() }
}

fn connect(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

fn check(client: &mut UnixStream, sent: &str, expected: &str) {
    client.write_all(sent.as_bytes()).unwrap();
    let mut answer = vec![0; expected.len()];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), expected);
}

fn refusal(path: &Path) -> std::io::Error {
    match Bound::bind(at(path)) {
        Err(BindError::Bind { address, error }) => {
            assert_eq!(address.to_string(), format!("unix:{}", path.display()));
            error
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn all_threads_serve_a_unix_socket_and_its_file_is_removed_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let server = Server::start(at(&path));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    let mut clients: Vec<UnixStream> = (0..40).map(|_| connect(&path)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        check(client, &format!("ms k{number} 1\r\nx\r\n"), "HD\r\n");
    }
    for client in &mut clients {
        check(client, "get k7\r\nmg k39 v\r\n", "VALUE k7 0 1\r\nx\r\nEND\r\nVA 1\r\nx\r\n");
    }
    let expected = format!("STAT domain_socket {}\r\nSTAT umask 640\r\n", path.display());
    clients[0].write_all(b"stats settings\r\nquit\r\n").unwrap();
    let mut settings = String::new();
    clients[0].read_to_string(&mut settings).unwrap();
    assert!(settings.contains(&expected) && settings.contains("STAT tcpport 0\r\n"), "{settings}");
    drop(server);
    assert!(!path.exists());
    let mut rest = String::new();
    clients[1].read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}

#[test]
fn unix_socket_file_without_a_listening_process_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let server = Server::start(at(&path));
    check(&mut connect(&path), "mn\r\n", "MN\r\n");
    drop(server);
}

#[test]
fn unix_socket_path_in_use_is_refused_and_its_file_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let other = UnixListener::bind(&path).unwrap();
    let error = refusal(&path);
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::AddrInUse, "somebody listens there"));
    drop((other, fs::remove_file(&path).unwrap()));
    File::create(&path).unwrap();
    let error = refusal(&path);
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.to_string().contains("no socket"), "{error}");
    assert!(path.exists());
    assert_eq!(refusal(&directory.path().join("none/s")).kind(), ErrorKind::NotFound);
    refusal(&directory.path().join("x".repeat(108)));
}

#[test]
fn file_that_replaced_the_unix_socket_is_not_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let bound = Bound::bind(at(&path)).unwrap();
    fs::rename(&path, directory.path().join("ours")).unwrap();
    let _later = UnixListener::bind(&path).unwrap();
    drop(bound);
    assert!(path.exists());
}
