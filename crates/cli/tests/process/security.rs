//! Executes the book's page on security, and tests clients that send a token.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::page::{self, can_type};
use crate::support::{Server, TIMEOUT};

const PAGE: &str = include_str!("../../../../docs/src/security.md");

/// Returns the page's blocks in a language, in order.
fn blocks(language: &str) -> Vec<&'static str> {
    let all = page::blocks(PAGE).into_iter();
    all.filter(|block| block.language == language).map(|block| block.text).collect()
}

/// Runs a block of the page in `directory` and returns its output.
#[track_caller]
fn typed(directory: &Path, block: &str) -> String {
    let ours = Path::new(env!("CARGO_BIN_EXE_sherwood")).parent().expect("a program is in a folder");
    let path = format!("{}:{}", ours.display(), std::env::var("PATH").expect("there is a path"));
    let mut bash = Command::new("bash");
    bash.args(["-eo", "pipefail", "-c", block]).current_dir(directory).env("PATH", path);
    let output = bash.output().unwrap();
    assert!(output.status.success(), "{block}{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn sherwood(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sherwood")).args(args).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn security_page_works_as_written() {
    if !can_type(&[("openssl", "openssl"), ("curl", "curl"), ("redis-cli", "redis-tools")]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let [certificate, secrets, _serve, ask, log_in, redis] = blocks("sh")[..] else { panic!("six blocks") };
    typed(here, certificate);
    typed(here, secrets);
    let path = here.join("secure.toml").display().to_string();
    let configuration = blocks("toml").concat();
    fs::write(&path, &configuration).unwrap();
    let checked = sherwood(&["check-config", &path]);
    assert!(checked.status.success(), "{}", said(&checked));
    // The page's configuration, on loopback with free ports.
    let text = configuration.replace("secrets/", &format!("{}/secrets/", here.display()));
    let text = ["11211", "6379", "8080"]
        .iter()
        .fold(text, |text, port| text.replace(&format!("0.0.0.0:{port}"), "127.0.0.1:0"));
    fs::write(&path, text).unwrap();
    let server = Server::start(&["--config", &path]);
    let admin = server.address("admin");
    let (_, port) = admin.rsplit_once(':').unwrap();
    let answers = typed(here, &ask.replace("localhost:8080", &format!("localhost:{port}")));
    assert!(answers.starts_with("ok\n[{\"name\":\"default\""), "{answers}");
    let commands = typed(here, &log_in.replace("| nc 127.0.0.1 11211", ""));
    let mut memcached = TcpStream::connect(server.address("memcached")).unwrap();
    memcached.set_read_timeout(Some(TIMEOUT)).unwrap();
    memcached.write_all(commands.as_bytes()).unwrap();
    let mut answer = String::new();
    memcached.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "STORED\r\nSTORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n");
    let address = server.address("redis");
    let (_, port) = address.rsplit_once(':').unwrap();
    let password = log_in.lines().next().unwrap();
    assert_eq!(typed(here, &format!("{password}\n{}", redis.replace("6379", port))), "OK\n");
}

#[test]
fn load_command_sends_the_token() {
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens");
    fs::write(&tokens, "# ours\n0123456789abcdef\n").unwrap();
    fs::set_permissions(&tokens, Permissions::from_mode(0o600)).unwrap();
    let config = directory.path().join("sherwood.toml").display().to_string();
    fs::write(&config, format!("[admin]\nbind = \"127.0.0.1:0\"\ntoken_file = {tokens:?}\n")).unwrap();
    let server = Server::start(&["--config", &config]);
    let target = format!("http://{}", server.address("admin"));
    let load = ["load", "--target", &target, "--backend", "default", "--ops", "10"];
    let without = sherwood(&load);
    assert_eq!(without.status.code(), Some(1));
    assert!(
        said(&without).contains("401") && said(&without).contains("asks for a token"),
        "{}",
        said(&without)
    );
    let file = tokens.display().to_string();
    let with = sherwood(&[&load[..], &["--token-file", &file]].concat());
    assert!(with.status.success(), "{}", said(&with));
    let record = ["sim", "record", "--node", &target, "--for", "1s", "nowhere/scenario.json"];
    assert!(said(&sherwood(&record)).contains("401"));
    // The command gets past the token, to the message that nothing was asked.
    let with = said(&sherwood(&[&record[..], &["--token-file", &file]].concat()));
    assert!(!with.contains("401"), "{with}");
    let wrong = sherwood(&[&load[..], &["--token-file", &config]].concat());
    assert_eq!(wrong.status.code(), Some(1), "the first line there is no token: {}", said(&wrong));
}
