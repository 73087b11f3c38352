//! Pages of the book, followed: their blocks of commands are typed, and what they show is held
//! against what comes.
//!
//! In a page, a block in ```` ```sh ```` is typed, and one right below it in ```` ```text ```` or
//! ```` ```json ```` is what it says; ```` ```console ```` is looked at only. What differs from run
//! to run is `…` in what a page shows, or a number with a decimal point.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// One fenced block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// The first word after the fence.
    pub(crate) language: &'static str,
    /// What else stands there.
    pub(crate) note: &'static str,
    pub(crate) text: &'static str,
    /// Where its text begins, lines from 1.
    line: usize,
    /// How many lines of prose are between it and the block before.
    apart: usize,
}

/// What a reader does with a block of commands.
pub(crate) enum Manner {
    /// Types it, and waits until it has ended.
    Type,
    /// Types it in a terminal of its own, where a node runs until another takes its place, and
    /// waits until it is ready.
    Serve,
    /// Leaves it be: it takes long, or has been done.
    Leave,
}

/// The fenced blocks of a page, in their order.
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

/// Whether the programs are there that a page types; in continuous integration they have to be. The
/// first of each pair is the program, the other the package that has it.
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

/// A reader at a shell. What was started there ends with it.
pub(crate) struct Reader {
    shell: Child,
    keys: ChildStdin,
    screen: BufReader<ChildStdout>,
    /// What is typed and shown in place of what a page says: ports, above all.
    instead: Vec<(String, String)>,
}

/// What the shell says behind each block, and then its status.
const PROMPT: &str = "=== typed, status ";

impl Reader {
    /// Sits down in an empty directory; `sherwood` is the program under test.
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

    /// Follows a page: types its commands, and compares what comes with what it shows. Returns what
    /// came of each.
    pub(crate) fn follow(&mut self, page: &'static str, manner: impl Fn(&Block) -> Manner) -> Vec<String> {
        let blocks = blocks(page);
        let mut all = Vec::new();
        for (at, block) in blocks.iter().enumerate().filter(|(_, block)| block.language == "sh") {
            let shown = blocks.get(at + 1).filter(|next| next.apart == 0);
            let text = self.translated(block.text);
            let said = match manner(block) {
                Manner::Type => self.type_in(block, &text),
                Manner::Serve => self.type_in(block, &served(&text)),
                Manner::Leave => continue,
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

    /// Types one block, and waits for what it says. A command of it that fails fails the test,
    /// unless a note says that it does.
    fn type_in(&mut self, block: &Block, text: &str) -> String {
        let fails = block.note == "fails";
        // A failure ends a shell that minds it; then the prompt comes from its trap.
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

/// The same in the background, after the one before it has ended.
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
        // SAFETY: sends a signal to the group of a child that has not been waited for, so that its
        // id is still its own.
        unsafe { libc::kill(-group, libc::SIGKILL) };
        let _ = self.shell.wait();
    }
}

/// Whether what came is what a page shows. JSON may be broken into lines and indented in a page.
fn is_alike(said: &str, shown: &str, language: &str) -> bool {
    if language == "json" {
        return matches(&compact(said), &compact(shown));
    }
    let lines = |text: &str| text.trim().lines().map(plain).collect::<Vec<_>>();
    are_alike(&lines(said), &lines(shown))
}

/// Line by line; a line of nothing but `…` stands for any lines.
fn are_alike(said: &[String], shown: &[String]) -> bool {
    match shown.split_first() {
        None => said.is_empty(),
        Some((line, rest)) if line == "…" => (0..=said.len()).any(|at| are_alike(&said[at..], rest)),
        Some((line, rest)) => {
            said.split_first().is_some_and(|(said, more)| matches(said, line) && are_alike(more, rest))
        }
    }
}

/// Without what is not compared: numbers with a decimal point, which are times and versions, and
/// how wide columns are.
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

/// Whether `said` is `shown`, where each `…` of it is any text.
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
fn what_a_page_shows_is_compared_but_for_times() {
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
fn blocks_are_found_with_what_stands_beside_their_fence() {
    let found = blocks("a\n\n```sh fails\nfalse\n```\n\n```text\nno\n```\nb\n```sh\ntrue\n```\n");
    let found: Vec<_> =
        found.iter().map(|one| (one.language, one.note, one.text, one.line, one.apart)).collect();
    assert_eq!(
        found,
        [("sh", "fails", "false\n", 4, 1), ("text", "", "no\n", 8, 0), ("sh", "", "true\n", 12, 1)]
    );
}
