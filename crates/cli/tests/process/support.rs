//! The program in a process of its own.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for any event; reached only by a failing test.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// The program under test with some arguments; its process is killed with the test.
pub(crate) struct Program {
    process: Child,
    /// Standard error, until it is ignored.
    stderr: Option<BufReader<ChildStderr>>,
}

impl Program {
    /// Starts the program. Its standard output is not read.
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::run(Command::new(env!("CARGO_BIN_EXE_sherwood")).args(args))
    }

    /// Starts a command that runs the program. Its standard output is not read.
    pub(crate) fn run(command: &mut Command) -> Self {
        let mut process =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = process.stderr.take().map(BufReader::new);
        Self { process, stderr }
    }

    /// Reads the program's standard error up to a line that satisfies `awaited`.
    pub(crate) fn read_until(&mut self, awaited: impl Fn(&str) -> bool) -> Vec<String> {
        let stderr = self.stderr.as_mut().expect("somebody listens");
        let mut said = Vec::new();
        while !said.last().is_some_and(|line: &String| awaited(line)) {
            let mut line = String::new();
            assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "it ended before it said so: {said:?}");
            said.push(line.trim_end().to_owned());
        }
        said
    }

    /// Waits until the process has a handler for this signal.
    pub(crate) fn catches(&self, signal: libc::c_int) {
        let start = Instant::now();
        let caught = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
            let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("Linux says so");
            u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal - 1) & 1 == 1
        };
        while !caught() {
            assert!(start.elapsed() < TIMEOUT, "it never handles signal {signal}");
            std::thread::yield_now();
        }
    }

    /// Returns what the process's file descriptors refer to, such as `anon_inode:[eventpoll]`.
    pub(crate) fn open_files(&self) -> Vec<String> {
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", self.process.id())).unwrap();
        let target = |descriptor: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_link(descriptor.ok()?.path()).ok()?.into_os_string().into_string().ok()
        };
        descriptors.filter_map(target).collect()
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, signal: libc::c_int) {
        let pid = libc::pid_t::try_from(self.process.id()).unwrap();
        // SAFETY: sends a signal to a child that has not been waited for, so the id is still valid.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }

    /// Returns the memory of the process that it shares with no file.
    pub(crate) fn private_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let kib = status.lines().find_map(|line| line.strip_prefix("RssAnon:")?.strip_suffix("kB"));
        kib.expect("Linux says so").trim().parse::<u64>().unwrap() << 10
    }

    /// Discards further output on standard error.
    pub(crate) fn ignore(&mut self) {
        self.stderr = None;
    }

    /// Waits for the end of the process; returns the exit status and the rest of the output.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < TIMEOUT, "it does not end");
            std::thread::yield_now();
        };
        let mut rest = String::new();
        if let Some(mut stderr) = self.stderr.take() {
            stderr.read_to_string(&mut rest).unwrap();
        }
        (status, rest)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A running `sherwood serve`.
pub(crate) struct Server {
    program: Program,
    /// Output until the node was ready.
    pub(crate) said: Vec<String>,
}

impl Server {
    /// Starts a node and waits until it reports that it is ready.
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::of(Program::start(&[&["serve"], args].concat()))
    }

    /// Waits until a started node reports that it is ready.
    pub(crate) fn of(mut program: Program) -> Self {
        let said = program.read_until(|line| line.starts_with("ready"));
        Self { program, said }
    }

    /// Returns what the process's file descriptors refer to, such as `anon_inode:[eventpoll]`.
    pub(crate) fn open_files(&self) -> Vec<String> {
        self.program.open_files()
    }

    /// Reads the node's standard error up to a line that satisfies `awaited`.
    pub(crate) fn read_until(&mut self, awaited: impl Fn(&str) -> bool) -> Vec<String> {
        self.program.read_until(awaited)
    }

    /// Returns the address that the `ready` line gives after `name`.
    pub(crate) fn address(&self, name: &str) -> String {
        let ready = self.said.last().unwrap();
        let address = ready.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        address
            .unwrap_or_else(|| panic!("no {name} in {ready:?}"))
            .trim_start_matches("http://")
            .trim_start_matches("https://")
            .to_owned()
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, signal: libc::c_int) {
        self.program.signal(signal);
    }

    /// Returns the memory of the process that it shares with no file.
    pub(crate) fn private_bytes(&self) -> u64 {
        self.program.private_bytes()
    }

    /// Discards further output on standard error.
    pub(crate) fn ignore(&mut self) {
        self.program.ignore();
    }

    /// Waits for the end of the process; returns the exit status and the rest of the output.
    pub(crate) fn end(self) -> (ExitStatus, String) {
        self.program.end()
    }
}
