//! Receiving and sending of listeners, as `[server] io` chooses, also where io_uring is refused.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::support::{Program, Server, TIMEOUT};

/// Number of the system call that sets up io_uring, the same on all architectures that the tests
/// run on.
const IO_URING_SETUP: u32 = 425;
/// Clients that ask at the same time.
const CLIENTS: usize = 40;

/// Returns the command of a node whose listeners use `io`.
fn serve(io: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sherwood"));
    command.args(["serve", "--memcached", "127.0.0.1:0", "--admin", "off", "--threads", "1", "--io", io]);
    command.stderr(Stdio::piped());
    command
}

/// Has the kernel answer an attempt of the program to use io_uring by `answer`.
fn filter_io_uring(command: &mut Command, answer: u32) -> &mut Command {
    let statement =
        |code: u32, jumps: (u8, u8), k| libc::sock_filter { code: code as u16, jt: jumps.0, jf: jumps.1, k };
    let filter = [
        // The number of the call is the first field.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, (0, 0), 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, (0, 1), IO_URING_SETUP),
        statement(libc::BPF_RET | libc::BPF_K, (0, 0), answer),
        statement(libc::BPF_RET | libc::BPF_K, (0, 0), libc::SECCOMP_RET_ALLOW),
    ];
    let install = move || {
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
        // SAFETY: `program` and its filter live longer than the calls, which only set properties of
        // this process.
        let installed = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
        };
        if installed { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: between fork and exec, `install` makes system calls alone.
    unsafe { command.pre_exec(install) }
}

/// Forbids io_uring in the program, as container runtimes do.
fn forbid_io_uring(command: &mut Command) -> &mut Command {
    filter_io_uring(command, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32)
}

/// Returns the line of the log that says how the listeners receive and send.
fn said(server: &Server) -> String {
    server.said.iter().find(|line| line.contains("listeners use")).expect("one line tells").clone()
}

/// Has many clients ask at the same time, several times; each has to get its own answers.
fn ask_together(address: &str) {
    let mut clients: Vec<TcpStream> = (0..CLIENTS)
        .map(|_| {
            let client = TcpStream::connect(address).unwrap();
            client.set_read_timeout(Some(TIMEOUT)).unwrap();
            client
        })
        .collect();
    for round in 0..20 {
        for (number, client) in clients.iter_mut().enumerate() {
            let value = format!("{number:02}-{round:02}");
            write!(client, "set k{number:02} 0 0 5\r\n{value}\r\nget k{number:02}\r\n").unwrap();
        }
        for (number, client) in clients.iter_mut().enumerate() {
            let expected = format!("STORED\r\nVALUE k{number:02} 0 5\r\n{number:02}-{round:02}\r\nEND\r\n");
            let mut answer = vec![0; expected.len()];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(String::from_utf8_lossy(&answer), expected);
        }
    }
}

#[test]
fn clients_that_ask_together_are_served_by_io_uring_where_it_is_available() {
    let server = Server::of(Program::run(&mut serve("auto")));
    let address = server.address("memcached");
    ask_together(&address);
    if said(&server).contains("listeners use io_uring") {
        let start = Instant::now();
        while !server.open_files().iter().any(|file| file == "anon_inode:[io_uring]") {
            assert!(start.elapsed() < TIMEOUT, "io_uring is available and not used");
            ask_together(&address);
        }
    }
    server.signal(libc::SIGTERM);
    let (status, log) = server.end();
    assert!(status.success(), "{log}");
}

#[test]
fn node_that_has_to_use_io_uring_starts_where_it_is_available() {
    let available = said(&Server::of(Program::run(&mut serve("auto")))).contains("listeners use io_uring");
    if available {
        let server = Server::of(Program::run(&mut serve("io_uring")));
        assert!(said(&server).contains("listeners use io_uring"), "{}", said(&server));
        ask_together(&server.address("memcached"));
    }
}

#[test]
fn node_that_uses_epoll_alone_does_not_even_try_io_uring() {
    let mut command = serve("epoll");
    let server = Server::of(Program::run(filter_io_uring(&mut command, libc::SECCOMP_RET_KILL_PROCESS)));
    assert!(said(&server).contains("listeners use epoll alone, as [server] io or --io says"));
    ask_together(&server.address("memcached"));
    server.signal(libc::SIGTERM);
    let (status, log) = server.end();
    assert!(status.success(), "{log}");
}

#[test]
fn node_that_may_not_use_io_uring_serves_by_epoll_and_says_why() {
    let server = Server::of(Program::run(forbid_io_uring(&mut serve("auto"))));
    let said = said(&server);
    assert!(said.contains("listeners use epoll alone") && said.contains("not permitted"), "{said}");
    ask_together(&server.address("memcached"));
    server.signal(libc::SIGTERM);
    let (status, log) = server.end();
    assert!(status.success() && !log.contains("WARN"), "{log}");
}

#[test]
fn node_that_has_to_use_io_uring_and_may_not_is_refused_with_the_remedy() {
    let output = forbid_io_uring(&mut serve("io_uring")).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        error.contains("io_uring cannot be used") && error.contains("set [server] io = \"auto\""),
        "{error}"
    );
}

#[test]
fn unknown_io_is_refused_with_the_known_ones() {
    let output = serve("uring").output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("--io is \"uring\"; it must be") && error.contains("io_uring"), "{error}");
}
