//! Execution of the book's pages: their commands are run and the output is compared with the page.
//!
//! In a page, a block in ```` ```sh ```` is executed, and a block in ```` ```text ```` or
//! ```` ```json ```` right below it is the expected output; ```` ```console ```` is not executed. In the
//! expected output, `…` stands for any text, and numbers with a decimal point are not compared.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

/// A fenced block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// The first word after the fence.
    pub(crate) language: &'static str,
    /// The rest of the line after that word.
    pub(crate) note: &'static str,
    pub(crate) text: &'static str,
    /// Number of the first line of the block's text, from 1.
    line: usize,
    /// Number of lines of prose between the block and the previous one.
    apart: usize,
}

/// Execution of a block of commands.
pub(crate) enum Execution {
    /// Runs the block and waits for its end.
    Run,
    /// Runs the block in the background, where a node runs until another replaces it, and waits
    /// until the node is ready.
    Background,
    /// Skips the block, because it takes long or has been done.
    Skip,
}

/// Returns the fenced blocks of a page in order.
pub(crate) fn blocks(page: &'static str) -> Vec<Block> {
    let (mut found, mut at, mut last) = (Vec::new(), 0, 0);
    while let Some(begin) = page[at..].find("```").map(|found| at + found) {
        let (fence, rest) = page[begin + 3..].split_once('\n').expect("a fence is a line");
        let (text, _) = rest.split_once("```").expect("a block ends");
        let (language, note) = fence.trim().split_once(' ').unwrap_or((fence.trim(), ""));
        let line = page[..begin].lines().count() + 2;
        let apart = page[last..begin].lines().filter(|line| !line.trim().is_empty()).count();
        found.push(Block { language, note, text, line, apart });
        at = begin + 3 + fence.len() + 1 + text.len() + 3;
        last = at;
    }
    found
}

/// Returns a loopback port that is free, and another one with every call. It is below the ports
/// that the system gives to outgoing connections: one of these could be taken before the page's
/// program binds it.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + (std::process::id() % 100) as u16 * 100;
    let mut ports = (0..1_000).map(|_| first + NEXT.fetch_add(1, Relaxed) % 1_000);
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a port is free")
}

/// Returns true when the programs that a page uses are installed; in continuous integration they
/// must be. Each pair is a program and the package that contains it.
pub(crate) fn can_type(programs: &[(&str, &str)]) -> bool {
    programs.iter().all(|(program, package)| match Command::new(program).arg("--version").output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let remedy = format!("{program} is not installed: apt-get install {package}");
            assert!(std::env::var_os("CI").is_none(), "{remedy}");
            eprintln!("skipped: {remedy}");
            false
        }
        _ => true,
    })
}

/// A shell that executes pages. Its processes end with it.
pub(crate) struct Reader {
    shell: Child,
    keys: ChildStdin,
    screen: BufReader<ChildStdout>,
    /// Replacements in commands and expected output, mainly of ports.
    instead: Vec<(String, String)>,
}

/// Printed by the shell after each block, followed by its exit status.
const PROMPT: &str = "=== typed, status ";

impl Reader {
    /// Starts a shell in an empty directory; `sherwood` is the program under test.
    pub(crate) fn at(directory: &Path, instead: Vec<(String, String)>) -> Self {
        let ours = Path::new(env!("CARGO_BIN_EXE_sherwood")).parent().expect("a program is in a folder");
        let path = std::env::var("PATH").expect("there is a path");
        let mut shell = Command::new("bash");
        shell.args(["--noprofile", "--norc", "-o", "pipefail"]).current_dir(directory).process_group(0);
        shell
            .env("PATH", format!("{}:{path}", ours.display()))
            .env("HOME", directory)
            .env("LC_ALL", "C.UTF-8");
        shell.env_remove("SHERWOOD_LOG").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().expect("bash is installed");
        let keys = shell.stdin.take().expect("it is piped");
        let screen = BufReader::new(shell.stdout.take().expect("it is piped"));
        let mut reader = Self { shell, keys, screen, instead };
        let begin = format!("exec 2>&1\ntrap 'status=$?; echo; echo \"{PROMPT}$status\"' EXIT\n");
        reader.keys.write_all(begin.as_bytes()).expect("it listens");
        reader
    }

    /// Executes a page's commands and compares the output. Returns the output of each block.
    pub(crate) fn follow(
        &mut self,
        page: &'static str,
        execution: impl Fn(&Block) -> Execution,
    ) -> Vec<String> {
        let blocks = blocks(page);
        let mut all = Vec::new();
        for (at, block) in blocks.iter().enumerate().filter(|(_, block)| block.language == "sh") {
            let shown = blocks.get(at + 1).filter(|next| next.apart == 0);
            let text = self.translated(block.text);
            let said = match execution(block) {
                Execution::Run => self.type_in(block, &text),
                Execution::Background => self.type_in(block, &served(&text)),
                Execution::Skip => continue,
            };
            if let Some(shown) = shown.filter(|next| matches!(next.language, "text" | "json")) {
                let expected = self.translated(shown.text);
                assert!(
                    is_alike(&said, &expected, shown.language),
                    "line {}: the page shows\n{expected}\nand what came is\n{said}",
                    shown.line
                );
            }
            all.push(said);
        }
        all
    }

    /// Runs a block and returns its output. A failing command fails the test, unless a note expects
    /// it.
    fn type_in(&mut self, block: &Block, text: &str) -> String {
        let fails = block.note == "fails";
        // With `set -e` a failure ends the shell, and the prompt is printed by its trap.
        let minding = if fails { "set +e" } else { "set -e" };
        let line = block.line;
        self.keys
            .write_all(
                format!("{minding}\n{{\n{text}}} < /dev/null\nstatus=$?; echo; echo \"{PROMPT}$status\"\n")
                    .as_bytes(),
            )
            .expect("it listens");
        let mut said = String::new();
        loop {
            let mut next = String::new();
            let bytes = self.screen.read_line(&mut next).expect("what it says is text");
            assert_ne!(bytes, 0, "line {line}: the shell is gone:\n{text}\nsaid\n{said}");
            if let Some(status) = next.strip_prefix(PROMPT) {
                assert_eq!(
                    status.trim() != "0",
                    fails,
                    "line {line}: status {status}of\n{text}\nwhich said\n{said}"
                );
                break said;
            }
            said.push_str(&next);
        }
    }

    fn translated(&self, text: &str) -> String {
        let one = |text: String, (of, with): &(String, String)| text.replace(of, with);
        self.instead.iter().fold(text.to_owned(), one)
    }
}

/// Turns a command into one that runs in the background, after the previous one has ended.
fn served(command: &str) -> String {
    let command = command.trim_end();
    format!(
        "[ -z \"${{node-}}\" ] || {{ kill $node; wait $node; }}\n{command} > node.log 2>&1 &\nnode=$!\n\
         until grep -q '^ready' node.log; do kill -0 $node || {{ cat node.log; false; }}; sleep 0.1; done\n"
    )
}

impl Drop for Reader {
    fn drop(&mut self) {
        let group = libc::pid_t::try_from(self.shell.id()).expect("an id of a process");
        // SAFETY: sends a signal to the process group of a child that has not been waited for, so
        // the id is still valid.
        unsafe { libc::kill(-group, libc::SIGKILL) };
        let _ = self.shell.wait();
    }
}

/// Returns true when the output matches the one shown on the page. JSON may be broken into lines
/// and indented in a page.
fn is_alike(said: &str, shown: &str, language: &str) -> bool {
    if language == "json" {
        return matches(&compact(said), &compact(shown));
    }
    let lines = |text: &str| text.trim().lines().map(plain).collect::<Vec<_>>();
    are_alike(&lines(said), &lines(shown))
}

/// Compares output with that shown on a page line by line; a line of only `…` stands for any number
/// of lines.
fn are_alike(said: &[String], shown: &[String]) -> bool {
    match shown.split_first() {
        None => said.is_empty(),
        Some((line, rest)) if line == "…" => (0..=said.len()).any(|at| are_alike(&said[at..], rest)),
        Some((line, rest)) => {
            said.split_first().is_some_and(|(said, more)| matches(said, line) && are_alike(more, rest))
        }
    }
}

/// Removes parts that are not compared: numbers with a decimal point, which are times and versions,
/// and the widths of columns.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let narrow = text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    let mut rest = narrow.as_str();
    while let Some(digit) = rest.find(|c: char| c.is_ascii_digit()) {
        plain.push_str(&rest[..digit]);
        rest = &rest[digit..];
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number = rest[..end].trim_end_matches('.');
        plain.push_str(if number.contains('.') { "N.N" } else { number });
        rest = &rest[number.len()..];
    }
    plain + rest
}

fn compact(json: &str) -> String {
    let joined: String = json.lines().map(str::trim).collect();
    plain(&joined.replace(": ", ":").replace(", ", ","))
}

/// Returns true when `said` equals `shown`, in which each `…` stands for any text.
fn matches(said: &str, shown: &str) -> bool {
    let Some((first, rest)) = shown.split_once('…') else { return said == shown };
    let Some(mut said) = said.strip_prefix(first) else { return false };
    let parts: Vec<&str> = rest.split('…').collect();
    let (last, between) = parts.split_last().expect("a split has a part");
    for part in between {
        let Some(at) = said.find(part) else { return false };
        said = &said[at + part.len()..];
    }
    said.ends_with(last)
}

#[test]
fn expected_output_of_a_page_is_compared_except_times() {
    assert!(is_alike("a 1.25 ms\nb 7\n", "a 3.5 ms\nb 7", "text"));
    assert!(!is_alike("a 1.25 ms\nb 7\n", "a 3.5 ms\nb 8", "text"));
    assert!(!is_alike("a\nb", "a", "text"));
    assert!(is_alike("a\nb\nc\n\nd", "a\n…\nd", "text") && !is_alike("a\nb\nc", "a\n…\nd", "text"));
    assert!(is_alike("1.5 ms   x", "12.5 ms  x", "text"));
    assert!(is_alike("port 5 of 10.11.6-x, ok", "port 5 of …, ok", "text"));
    assert!(!is_alike("port 5 of 10.11.6-x, no", "port 5 of …, ok", "text"));
    assert!(is_alike("{\"a\":1,\"b\":[2]}", "{\"a\": 1,\n  \"b\": [2]}", "json"));
    assert!(!is_alike("{\"a\":1,\"b\":[2]}", "{\"a\": 1,\n  \"b\": […, 2]}", "json"));
}

#[test]
fn code_blocks_of_a_page_are_found_with_language_and_note() {
    let found = blocks("a\n\n```sh fails\nfalse\n```\n\n```text\nno\n```\nb\n```sh\ntrue\n```\n");
    let found: Vec<_> =
        found.iter().map(|one| (one.language, one.note, one.text, one.line, one.apart)).collect();
    assert_eq!(
        found,
        [("sh", "fails", "false\n", 4, 1), ("text", "", "no\n", 8, 0), ("sh", "", "true\n", 12, 1)]
    );
}
