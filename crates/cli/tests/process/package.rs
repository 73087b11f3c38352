//! Debian's package, installed by dpkg into a folder, and under a systemd of its own.
//!
//! In the folder neither root's rights nor a service manager are needed: dpkg runs the package's
//! scripts outside it and tells them where it is (`DPKG_ROOT`). Both leave the machine as it is.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::page::{can_type, free_port};
use crate::support::{Program, Server};

/// A folder with dpkg's database, in which the packages that ours depends on are installed.
struct Root(tempfile::TempDir);

impl Root {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("var/lib/dpkg");
        fs::create_dir_all(database.join("info")).unwrap();
        fs::create_dir_all(database.join("updates")).unwrap();
        let installed = run("dpkg-query", &["--status", "libc6", "libgcc-s1", "init-system-helpers"]);
        fs::write(database.join("status"), installed).unwrap();
        Self(directory)
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// Runs dpkg on this folder and returns what it says.
    fn dpkg(&self, args: &[&str]) -> String {
        let root = format!("--root={}", self.0.path().display());
        let forced = "--force-not-root,script-chrootless,confold,unsafe-io";
        run("dpkg", &[&[&root, forced, "--log=/dev/null"], args].concat())
    }

    /// Returns the files and links below the folder, apart from dpkg's database.
    fn files(&self) -> Vec<String> {
        let found =
            run("find", &[&self.0.path().display().to_string(), "!", "-type", "d", "-printf", "%P\n"]);
        found.lines().filter(|path| !path.starts_with("var/lib/dpkg/")).map(str::to_owned).collect()
    }

    /// Starts the installed program with the installed configuration.
    fn serve(&self) -> Server {
        let mut command = Command::new(self.path("usr/bin/sherwood"));
        Server::of(Program::run(command.arg("serve").arg("--config").arg(self.path(CONFIG))))
    }
}

const CONFIG: &str = "etc/sherwood/sherwood.toml";

/// Runs a command, which must succeed, and returns its output.
fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn script(name: &str) -> String {
    format!("{}/../../scripts/dist/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Builds the packages of the program under test and returns the path of the main one.
fn build(directory: &Path) -> String {
    let directory = directory.to_str().unwrap();
    run(&script("deb.sh"), &[env!("CARGO_BIN_EXE_sherwood"), directory, "-Znone"]);
    let packages = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path().display().to_string());
    let (symbols, mut main): (Vec<_>, Vec<_>) = packages.partition(|path| path.contains("dbgsym"));
    assert_eq!((symbols.len(), main.len()), (1, 1));
    main.remove(0)
}

fn ask(server: &Server, command: &str) -> String {
    let mut stream = TcpStream::connect(server.address("memcached")).unwrap();
    stream.write_all(format!("{command}\r\nquit\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn debian_package_is_installed_started_upgraded_removed_and_purged() {
    if !can_type(&[("dpkg-deb", "dpkg"), ("objcopy", "binutils"), ("systemctl", "systemd")]) {
        return;
    }
    let built = tempfile::tempdir().unwrap();
    let package = build(built.path());
    let root = Root::new();

    root.dpkg(&["--install", &package]);
    let enabled = |unit| {
        let root = format!("--root={}", root.0.path().display());
        let output = Command::new("systemctl").args([&root, "is-enabled", unit]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    assert_eq!(
        (enabled("sherwood.service"), enabled("sherwood.socket")),
        ("enabled".into(), "enabled".into())
    );
    let completions = root.path("usr/share/bash-completion/completions/sherwood");
    let complete = "source $0; COMP_WORDS=(sherwood serve --memc); COMP_CWORD=2; \
                    _sherwood sherwood --memc serve; echo ${COMPREPLY[@]}";
    assert_eq!(run("bash", &["-c", complete, completions.to_str().unwrap()]), "--memcached\n");
    let page = run("gzip", &["-dc", root.path("usr/share/man/man1/sherwood-serve.1.gz").to_str().unwrap()]);
    assert!(page.contains("\\-\\-memcached"), "{page}");

    // As an administrator does: other addresses, and here also another place for the snapshot.
    let config = fs::read_to_string(root.path(CONFIG)).unwrap();
    let edited = config
        .replace(":11211", &format!(":{}", free_port()))
        .replace(":8080", &format!(":{}", free_port()))
        .replace("/var/lib/sherwood", root.path("var/lib/sherwood").to_str().unwrap());
    fs::write(root.path(CONFIG), &edited).unwrap();
    // The service manager's StateDirectory=.
    fs::create_dir_all(root.path("var/lib/sherwood")).unwrap();

    let server = root.serve();
    let url = format!("http://{}", server.address("admin"));
    assert_eq!(run(root.path("usr/bin/sherwood").to_str().unwrap(), &["ready", "--url", &url]), "");
    assert_eq!(ask(&server, "set greeting 0 0 5\r\nhello"), "STORED\r\n");
    server.signal(libc::SIGTERM);
    assert!(server.end().0.success());

    root.dpkg(&["--install", &package]);
    assert_eq!(fs::read_to_string(root.path(CONFIG)).unwrap(), edited);
    let server = root.serve();
    assert_eq!(ask(&server, "get greeting"), "VALUE greeting 0 5\r\nhello\r\nEND\r\n");
    server.signal(libc::SIGTERM);
    assert!(server.end().0.success());

    root.dpkg(&["--remove", "sherwood"]);
    assert!(!root.path("usr/bin/sherwood").exists());
    assert!(root.path(CONFIG).exists() && root.path("var/lib/sherwood/snapshot").exists());
    root.dpkg(&["--purge", "sherwood"]);
    assert_eq!(root.files(), [""; 0]);
}

#[test]
fn debian_package_runs_under_systemd_and_its_upgrade_keeps_the_contents() {
    if !can_type(&[("dpkg-deb", "dpkg"), ("objcopy", "binutils"), ("systemctl", "systemd")]) {
        return;
    }
    let built = tempfile::tempdir().unwrap();
    let output = Command::new(script("under_systemd.sh")).arg(build(built.path())).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(3) {
        // No package can bring these rights; the test above installs the package without them.
        eprintln!("skipped: {said}");
        return;
    }
    assert!(output.status.success(), "{}\n{said}", String::from_utf8_lossy(&output.stdout));
}
