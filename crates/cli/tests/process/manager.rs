//! `sherwood serve` under a service manager: passed sockets and notifications.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::support::{Program, Server, TIMEOUT};

/// Returns a command that starts `sherwood serve` and passes it these sockets, as systemd does.
pub(crate) fn serve_with(sockets: &[(&str, BorrowedFd<'_>)], args: &[&str]) -> Command {
    let (names, descriptors): (Vec<&str>, Vec<BorrowedFd<'_>>) = sockets.iter().copied().unzip();
    let copies: Vec<OwnedFd> = descriptors.into_iter().map(above).collect();
    let mut command = Command::new("sh");
    // The variable names the process that takes the sockets, whose number only the child knows.
    command.args(["-c", "export LISTEN_PID=$$; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_sherwood"), "serve"]);
    command.args(args).env("LISTEN_FDS", copies.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
    let pass = move || {
        for (copy, target) in copies.iter().zip(3..) {
            // SAFETY: the child calls it between fork and exec; nothing there owns the target.
            if unsafe { libc::dup2(copy.as_raw_fd(), target) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: it calls nothing but dup2, which may be called between fork and exec.
    unsafe { command.pre_exec(pass) };
    command
}

/// Returns a copy of a descriptor above those that it is passed as, closed in other children.
fn above(descriptor: BorrowedFd<'_>) -> OwnedFd {
    // SAFETY: the result is a new descriptor, which nothing else owns.
    unsafe {
        let copy = libc::fcntl(descriptor.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 100);
        assert!(copy >= 0, "{}", io::Error::last_os_error());
        OwnedFd::from_raw_fd(copy)
    }
}

/// Sends a command on a new connection and checks the answer.
#[track_caller]
fn talk(mut stream: impl Read + Write, sent: &str, expected: &str) {
    stream.write_all(sent.as_bytes()).unwrap();
    let mut answer = vec![0; expected.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), expected);
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

#[test]
fn listeners_and_admin_api_take_the_sockets_passed_for_their_addresses() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let ports: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let [memcached, redis, admin] = [0, 1, 2].map(|at: usize| ports[at].local_addr().unwrap().to_string());
    let unix = UnixListener::bind(&path).unwrap();
    let inode = || std::os::unix::fs::MetadataExt::ino(&fs::metadata(&path).unwrap());
    let first = inode();
    // In another order than the configured addresses.
    let sockets = [
        ("sherwood.socket", ports[2].as_fd()),
        ("sherwood.socket", unix.as_fd()),
        ("sherwood.socket", ports[1].as_fd()),
        ("other.socket", ports[0].as_fd()),
    ];
    let at = path.to_str().unwrap();
    let args = [
        "--memcached",
        &memcached,
        "--unix-socket",
        at,
        "--redis",
        &redis,
        "--admin",
        &admin,
        "--threads",
        "2",
    ];
    let server = Server::of(Program::run(&mut serve_with(&sockets, &args)));
    for (name, address) in [("redis", &redis), ("admin", &admin), ("memcached", &memcached)] {
        assert_eq!(server.address(name), *address);
    }
    talk(connect(&memcached), "set k 0 0 1\r\nx\r\n", "STORED\r\n");
    talk(connect(&redis), "GET k\r\n", "$1\r\nx\r\n");
    talk(UnixStream::connect(&path).unwrap(), "get k\r\n", "VALUE k 0 1\r\nx\r\nEND\r\n");
    talk(connect(&admin), "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", "HTTP/1.1 200 OK\r\n");
    server.signal(libc::SIGTERM);
    assert!(server.end().0.success());
    // They belong to whoever opened them, and stay.
    connect(&memcached);
    assert_eq!(inode(), first);
    UnixStream::connect(&path).unwrap();
}

#[test]
fn passed_descriptor_that_no_listener_takes_is_refused() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let file = tempfile::tempfile().unwrap();
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let configured = "configured are memcached 127.0.0.1:0";
    let twice = [("first", other.as_fd()), ("second", other.as_fd())];
    for (sockets, args, status, parts) in [
        (
            &[("far", other.as_fd())][..],
            &["--memcached", "127.0.0.1:0"][..],
            1,
            ["\"far\"", &address, configured],
        ),
        (&twice, &["--memcached", &address], 1, ["\"second\"", &address, "configured are memcached"]),
        (&[("odd", file.as_fd())], &[], 2, ["\"odd\"", "no socket", "ListenStream="]),
        (&[("odd", udp.as_fd())], &[], 2, ["\"odd\"", "of another type", "ListenStream="]),
    ] {
        let args = [args, &["--admin", "off"]].concat();
        let (ended, said) = Program::run(&mut serve_with(sockets, &args)).end();
        assert_eq!(ended.code(), Some(status), "{said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{parts:?} in {said}");
    }
}

#[test]
fn malformed_announcement_of_sockets_is_refused_and_that_of_another_process_ignored() {
    for (variable, value) in [("LISTEN_FDS", "one"), ("LISTEN_FDS", "2000000"), ("LISTEN_FDNAMES", "a:b:c")] {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut command = serve_with(&[("a", socket.as_fd())], &[]);
        let (ended, said) = Program::run(command.env(variable, value)).end();
        assert!(ended.code() == Some(2) && said.contains("LISTEN_FDS"), "{variable}={value}: {said}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_sherwood"));
    command.args(["serve", "--admin", "127.0.0.1:0"]).env("LISTEN_FDS", "7").env("LISTEN_PID", "1");
    let server = Server::of(Program::run(&mut command));
    server.signal(libc::SIGTERM);
    assert!(server.end().0.success());
}

/// The socket at which a service manager is notified.
struct Notified(UnixDatagram);

impl Notified {
    /// Returns the next notification that is not the watchdog's, by fields.
    fn next(&self) -> Vec<String> {
        loop {
            let fields = self.any();
            if fields != ["WATCHDOG=1"] {
                return fields;
            }
        }
    }

    fn any(&self) -> Vec<String> {
        let mut bytes = [0; 4096];
        let count = self.0.recv(&mut bytes).expect("a notification");
        String::from_utf8_lossy(&bytes[..count]).lines().map(str::to_owned).collect()
    }

    /// Waits until the watchdog has been told `times` that the node is alive.
    fn watched(&self, mut times: u32) {
        while times > 0 {
            times -= u32::from(self.any() == ["WATCHDOG=1"]);
        }
    }
}

#[test]
fn service_manager_is_notified_of_start_reload_life_and_end() {
    let directory = tempfile::tempdir().unwrap();
    let (config, path) = (directory.path().join("sherwood.toml"), directory.path().join("notify"));
    let text = "[control]\npolicy = \"static\"\n[admin]\nbind = \"127.0.0.1:0\"\n";
    fs::write(&config, text).unwrap();
    let notified = Notified(UnixDatagram::bind(&path).unwrap());
    notified.0.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sherwood"));
    command.args(["serve", "--memcached", "127.0.0.1:0", "--config", config.to_str().unwrap()]);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "2000000");
    let mut program = Program::run(&mut command);
    assert_eq!(notified.next(), ["STATUS=opening the stores, and reading the snapshot if there is one"]);
    let ready = notified.next();
    assert_eq!(ready[0], "READY=1");
    let address = ready[1].strip_prefix("STATUS=ready memcached=").expect("its addresses");
    talk(connect(address.split(' ').next().unwrap()), "get a\r\n", "END\r\n");
    // Each but the first follows answers of all threads.
    notified.watched(3);
    let other = text.replace("static", "robinhood");
    for (text, result) in [
        (text, "the configuration was read again: nothing differs"),
        (&other, "the configuration was read again; changed: [control] policy"),
        ("[control]\npolicy = \"nobody\"\n", "the configuration was read again, and the old one stays: "),
    ] {
        fs::write(&config, text).unwrap();
        program.signal(libc::SIGHUP);
        let reloading = notified.next();
        assert_eq!(reloading[0], "RELOADING=1");
        let time: u64 = reloading[1].strip_prefix("MONOTONIC_USEC=").unwrap().parse().unwrap();
        assert!(time > 0);
        let done = notified.next();
        assert_eq!((&done[0][..], done.len()), ("READY=1", 2), "{done:?}");
        assert!(done[1].starts_with(&format!("STATUS={result}")), "{done:?}");
    }
    program.ignore();
    program.signal(libc::SIGTERM);
    assert_eq!(notified.next()[0], "STOPPING=1");
    assert!(program.end().0.success());
    notified.0.set_nonblocking(true).unwrap();
    assert_eq!(notified.0.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock, "nothing follows");
}

#[test]
fn node_serves_though_its_service_manager_cannot_be_notified() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sherwood"));
    command.args(["serve", "--admin", "off", "--memcached", "127.0.0.1:0"]);
    let mut server = Server::of(Program::run(command.env("NOTIFY_SOCKET", "/nonexistent/notify")));
    server.read_until(|line| line.contains("NOTIFY_SOCKET"));
    talk(connect(&server.address("memcached")), "get a\r\n", "END\r\n");
}
