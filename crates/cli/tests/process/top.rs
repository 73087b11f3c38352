//! `sherwood top` in a terminal of tmux, before a node that ends and starts again.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

use crate::page::can_type;
use crate::support::{Server, TIMEOUT};

fn sherwood(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sherwood")).args(args).output().unwrap()
}

/// A terminal with a server of tmux of its own.
struct Tmux<'a>(&'a Path);

impl Tmux<'_> {
    /// Shows the node at `url` on a screen of this size.
    fn start(&self, url: &str, columns: &str, rows: &str) {
        let command = format!(
            "{} top --interval 100ms --url {url}; echo ended with $?; read -r line",
            env!("CARGO_BIN_EXE_sherwood")
        );
        let session = self.run(&["new-session", "-d", "-x", columns, "-y", rows, "sh", "-c", &command]);
        assert!(session.status.success(), "{}", String::from_utf8_lossy(&session.stderr));
    }

    fn run(&self, args: &[&str]) -> Output {
        Command::new("tmux").arg("-S").arg(self.0.join("tmux")).args(args).output().unwrap()
    }

    /// Waits until the screen has this text, and returns the screen.
    fn shows(&self, text: &str) -> String {
        let start = Instant::now();
        loop {
            let screen = self.run(&["capture-pane", "-p"]).stdout;
            let screen = String::from_utf8_lossy(&screen).into_owned();
            if screen.contains(text) {
                return screen;
            }
            assert!(start.elapsed() < TIMEOUT, "no {text:?} on the screen: {screen}");
        }
    }
}

impl Drop for Tmux<'_> {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}

const CONFIG: &str = "
[memory]
total = \"16MiB\"
[admin]
bind = \"PORT\"
[[backend]]
name = \"catalog\"
[[backend]]
name = \"prices\"
";

#[test]
fn terminal_shows_a_node_that_ends_and_starts_again() {
    if !can_type(&[("tmux", "tmux")]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.toml");
    let start = |bind: &str| {
        fs::write(&path, CONFIG.replace("PORT", bind)).unwrap();
        Server::start(&["--config", path.to_str().unwrap()])
    };
    let node = start("127.0.0.1:0");
    let url = format!("http://{}", node.address("admin"));
    let tmux = Tmux(directory.path());
    tmux.start(&url, "90", "24");
    let screen = tmux.shows("prices");
    assert!(screen.contains("catalog") && screen.contains("never violated"), "{screen}");
    for list in [
        "no backends that the node asks",
        "no reads lately",
        "no tenants with a measured throughput",
        "this node is alone",
    ] {
        tmux.run(&["send-keys", "Tab"]);
        tmux.shows(list);
    }
    tmux.run(&["send-keys", "?"]);
    tmux.shows("sort partitions by");
    tmux.run(&["send-keys", "?"]);
    tmux.run(&["resize-window", "-x", "40", "-y", "8"]);
    node.signal(libc::SIGTERM);
    assert!(node.end().0.success());
    tmux.shows("away:");
    let _node = start(url.trim_start_matches("http://"));
    tmux.shows("not known yet");
    tmux.run(&["send-keys", "q"]);
    tmux.shows("ended with 0");
}

#[test]
fn terminal_lists_the_nodes_of_a_cluster() {
    if !can_type(&[("tmux", "tmux")]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.toml");
    // No bus is there, so the other node is not heard.
    let cluster = "[cluster]\nname = \"shop\"\nnode = \"a\"\nnodes = [\"a\", \"b\"]\n\
                   bus = { servers = [\"nats://127.0.0.1:1\"] }\n";
    let shared = "[[backend]]\nname = \"stock\"\nshared = { stale = \"2s\" }\n\
                  store = { kind = \"redis\", address = \"127.0.0.1:1\" }\n";
    fs::write(&path, CONFIG.replace("PORT", "127.0.0.1:0") + cluster + shared).unwrap();
    let node = Server::start(&["--config", path.to_str().unwrap()]);
    let tmux = Tmux(directory.path());
    tmux.start(&format!("http://{}", node.address("admin")), "90", "30");
    tmux.shows("partition");
    tmux.run(&["send-keys", "Tab", "Tab", "Tab", "Tab"]);
    let screen = tmux.shows("node a: decisions use this node's requests alone");
    let row = |name: &str| screen.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    assert!(row("b ").contains("never") && row("b ").contains("no answer yet"), "{screen}");
    assert!(row("stock ").contains("not trusted") && row("stock ").contains("refused for"), "{screen}");
}

#[test]
fn one_look_is_text_and_a_pipe_is_no_terminal() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.toml");
    fs::write(&path, CONFIG.replace("PORT", "127.0.0.1:0")).unwrap();
    let node = Server::start(&["--config", path.to_str().unwrap()]);
    let url = format!("http://{}", node.address("admin"));
    let look = sherwood(&["top", "--once", "--url", &url]);
    let text = String::from_utf8_lossy(&look.stdout);
    assert!(look.status.success() && text.contains("catalog") && !text.contains('\u{1b}'), "{text}");
    let refused = sherwood(&["top", "--url", &url]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("give --once"));
}
