//! MariaDB, PostgreSQL and PgBouncer as processes of an unprivileged user, since none runs as root.

use std::fs::{self, Permissions};
use std::io::{ErrorKind, Write};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use sherwood_store::{Secret, SqlOptions};
use tempfile::TempDir;

use crate::servers::{START_TIMEOUT, until_ready};

/// The password of all users in the tests.
pub(crate) const PASSWORD: &str = "not a secret";

/// A database server process that runs until it is dropped or killed.
pub(crate) struct Database {
    process: Child,
    command: Command,
    pub(crate) port: u16,
    pub(crate) folder: TempDir,
}

/// Options for a small and fast server: little memory and disk, no asynchronous I/O, no syncs.
const MARIADB: [&str; 5] = [
    "--innodb-buffer-pool-size=16M",
    "--innodb-log-file-size=4M",
    "--innodb-use-native-aio=0",
    "--innodb-flush-method=nosync",
    "--skip-log-bin",
];

impl Database {
    /// Starts MariaDB with a database `shop` and a user `shop` with all privileges in it.
    pub(crate) fn mariadb(more: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let folder = folder_of("mysql");
        let data = format!("--datadir={}", folder.path().join("data").display());
        let mut install = at(&folder, "mysql", "mariadb-install-db");
        install.args(["--no-defaults", &data]).args(MARIADB);
        finish(install.args(["--auth-root-authentication-method=normal", "--skip-test-db"]));
        let start = folder.path().join("start.sql");
        let grants = ["127.0.0.1", "localhost"].map(|host| {
            format!("CREATE USER IF NOT EXISTS 'shop'@'{host}' IDENTIFIED BY '{PASSWORD}';\nGRANT ALL ON shop.* TO 'shop'@'{host}';\n")
        });
        fs::write(&start, format!("CREATE DATABASE IF NOT EXISTS shop;\n{}", grants.concat())).unwrap();
        let socket = folder.path().join("socket");
        // Debian installs it outside of the normal path.
        let program = Path::new("/usr/sbin/mariadbd");
        let program = if program.exists() { "/usr/sbin/mariadbd" } else { "mariadbd" };
        let mut command = at(&folder, "mysql", program);
        command.args(["--no-defaults", &data, "--bind-address=127.0.0.1", "--skip-name-resolve"]);
        command.args([
            "--innodb-buffer-pool-size=16M",
            "--innodb-flush-log-at-trx-commit=2",
            "--skip-log-bin",
        ]);
        command.arg(format!("--socket={}", socket.display())).arg(format!("--init-file={}", start.display()));
        command.args(more(folder.path()));
        Self::start(command, folder, |port| vec![format!("--port={port}")])
    }

    /// Starts PostgreSQL with a superuser `admin`, and a database `shop` owned by a user `shop`.
    pub(crate) fn postgres(more: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let folder = folder_of("postgres");
        let (data, password) = (folder.path().join("data"), folder.path().join("password"));
        fs::write(&password, PASSWORD).unwrap();
        let mut init = at(&folder, "postgres", &postgres_program("initdb"));
        init.arg("-D").arg(&data).arg(format!("--pwfile={}", password.display()));
        finish(init.args(["-U", "admin", "-A", "scram-sha-256", "--no-sync", "-E", "UTF8", "--locale=C"]));
        let mut single = at(&folder, "postgres", &postgres_program("postgres"));
        single.arg("--single").arg("-D").arg(&data).arg("postgres");
        // One statement per line.
        feed(
            &mut single,
            &format!("CREATE ROLE shop LOGIN PASSWORD '{PASSWORD}'\nCREATE DATABASE shop OWNER shop\n"),
        );
        let mut command = at(&folder, "postgres", &postgres_program("postgres"));
        command.arg("-D").arg(&data).arg("-k").arg(folder.path());
        for setting in
            ["listen_addresses=127.0.0.1", "fsync=off", "shared_buffers=16MB", "max_connections=20"]
        {
            command.args(["-c", setting]);
        }
        command.args(more(folder.path()));
        Self::start(command, folder, |port| vec!["-p".to_owned(), port.to_string()])
    }

    /// Starts PgBouncer in front of a PostgreSQL server, in a pool mode. It has two connections to
    /// the server, or more in session mode, since each client keeps one there.
    pub(crate) fn pgbouncer(server: &Self, mode: &str) -> Self {
        let folder = folder_of("postgres");
        let program = Path::new("/usr/sbin/pgbouncer");
        let program = if program.exists() { "/usr/sbin/pgbouncer" } else { "pgbouncer" };
        let command = at(&folder, "postgres", program);
        let connections = if mode == "session" { 12 } else { 2 };
        let (settings, port) = (folder.path().join("pgbouncer.ini"), server.port);
        let users = folder.path().join("users");
        fs::write(&users, format!("\"shop\" \"{PASSWORD}\"\n")).unwrap();
        let users = users.display().to_string();
        let write = move |listens| {
            let text = format!(
                "[databases]
                shop = host=127.0.0.1 port={port} dbname=shop user=shop password='{PASSWORD}' pool_size={connections}
                [pgbouncer]
                listen_addr = 127.0.0.1
                listen_port = {listens}
                unix_socket_dir =
                pool_mode = {mode}
                auth_type = scram-sha-256
                auth_file = {users}
                "
            );
            let lines: Vec<_> = text.lines().map(str::trim).collect();
            fs::write(&settings, lines.join("\n")).unwrap();
            vec![settings.display().to_string()]
        };
        Self::start(command, folder, write)
    }

    fn start(mut command: Command, folder: TempDir, args: impl FnOnce(u16) -> Vec<String>) -> Self {
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
        command.args(args(port));
        let process = spawn(&mut command);
        let mut server = Self { process, command, port, folder };
        server.wait().unwrap_or_else(|status| panic!("{:?} ended: {status}", server.command));
        server
    }

    /// Waits until the server listens and is ready, which PostgreSQL writes to a file, or has
    /// ended.
    fn wait(&mut self) -> Result<(), ExitStatus> {
        let written = self.folder.path().join("data/postmaster.pid");
        let is_ready = || fs::read_to_string(&written).map_or(true, |written| written.contains("ready"));
        until_ready(&mut self.process, &self.command, self.port, is_ready)
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Options of a store on the database `shop` with the read statement `query`.
    pub(crate) fn options(&self, query: &str) -> SqlOptions {
        let password = self.folder.path().join("login");
        fs::write(&password, format!("{PASSWORD}\n")).unwrap();
        let mut options = SqlOptions::new(self.address(), "shop", "shop", query);
        options.password = Some(Secret::File(password));
        // Test machines are busy.
        (options.remote.connect_timeout_ms, options.remote.answer_timeout_ms) = (30_000, 30_000);
        options
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().and_then(|()| self.process.wait()).expect("it is ours");
    }

    /// Starts the server again, on the same port and with its data.
    pub(crate) fn restart(&mut self) {
        let start = Instant::now();
        while !self.starts() {
            assert!(start.elapsed() < START_TIMEOUT, "{:?} does not start again", self.command);
        }
    }

    /// Starts the server; false if it ends at once, as PostgreSQL does while processes of a killed
    /// server are still running, which end when they notice that it is gone.
    fn starts(&mut self) -> bool {
        self.process = spawn(&mut self.command);
        self.wait().is_ok()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The user and group id of the account `user`, which runs servers if the test runs as root.
fn account(user: &str) -> Option<(u32, u32)> {
    let id = |which| {
        let output = Command::new("id").args([which, user]).output().expect("`id` runs");
        String::from_utf8_lossy(&output.stdout).trim().parse().ok()
    };
    let we = Command::new("id").arg("-u").output().expect("`id` runs").stdout;
    if String::from_utf8_lossy(&we).trim() != "0" {
        return None;
    }
    let package = if user == "mysql" { "mariadb-server" } else { "postgresql" };
    Some(id("-u").zip(id("-g")).unwrap_or_else(|| panic!("there is no user {user}: {}", remedy(package))))
}

fn folder_of(user: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    if let Some((uid, gid)) = account(user) {
        chown(folder.path(), Some(uid), Some(gid)).expect("root may give folders away");
    }
    folder
}

/// Makes the key file of a server readable by the server's user only, which the server requires.
pub(crate) fn give_to(key: &Path, user: &str) {
    fs::set_permissions(key, Permissions::from_mode(0o600)).expect("it is ours");
    if let Some((uid, gid)) = account(user) {
        chown(key, Some(uid), Some(gid)).expect("root may give files away");
    }
}

/// A command that runs `program` in `folder`, as `user` if the test runs as root.
fn at(folder: &TempDir, user: &str, program: &str) -> Command {
    let mut command = Command::new(program);
    // A server removes the temporary tables in this folder when it starts, also those of another
    // server.
    command.env("TMPDIR", folder.path());
    command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some((uid, gid)) = account(user) {
        command.uid(uid).gid(gid);
    }
    command
}

/// The path of a PostgreSQL program, which Debian installs outside of the search path, in a folder
/// per version.
fn postgres_program(name: &str) -> String {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest =
        versions.filter_map(|version| version.file_name().to_string_lossy().parse::<u32>().ok()).max();
    let program = newest.map(|version| PathBuf::from(format!("/usr/lib/postgresql/{version}/bin/{name}")));
    program
        .filter(|program| program.exists())
        .map_or(name.to_owned(), |program| program.display().to_string())
}

fn finish(command: &mut Command) {
    let process = spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let output = process.wait_with_output().expect("it is ours");
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, said.concat());
}

fn feed(command: &mut Command, lines: &str) {
    let mut process = spawn(command.stdin(Stdio::piped()));
    process.stdin.take().expect("it is piped").write_all(lines.as_bytes()).expect("it reads");
    let status = process.wait().expect("it is ours");
    assert!(status.success(), "{command:?}: {status}");
}

fn spawn(command: &mut Command) -> Child {
    match command.spawn() {
        Ok(process) => process,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let program = command.get_program().to_string_lossy().into_owned();
            let package = match program {
                _ if program.contains("mariadb") => "mariadb-server",
                _ if program.contains("pgbouncer") => "pgbouncer",
                _ => "postgresql",
            };
            panic!("{program} is not installed: {}", remedy(package));
        }
        Err(error) => panic!("{command:?}: {error}"),
    }
}

fn remedy(package: &str) -> String {
    format!("apt-get install {package}, or `make need-test`")
}

/// The section of docs/src/databases.md with the title `heading`, so that tests execute its
/// examples.
pub(crate) fn page(heading: &str) -> &'static str {
    let page = include_str!("../../../../docs/src/databases.md");
    let (_, section) = page.split_once(&format!("## {heading}\n")).expect("the page has it");
    section.split_once("\n## ").map_or(section, |(section, _)| section)
}

/// The statements of the SQL block in a section of the page.
pub(crate) fn page_statements(section: &'static str) -> Vec<&'static str> {
    let (_, block) = section.split_once("```sql\n").expect("it has one");
    let (block, _) = block.split_once("```").expect("it ends");
    block.split(';').map(str::trim).filter(|statement| !statement.is_empty()).collect()
}

/// The text of the option `key` in the configuration that a section of the page shows.
pub(crate) fn page_text(section: &'static str, key: &str) -> String {
    let (_, rest) = section.split_once(&format!("\n{key} = \"")).expect("it is there");
    let (text, _) = match rest.strip_prefix("\"\"") {
        Some(lines) => lines.split_once("\"\"\""),
        None => rest.split_once('"'),
    }
    .expect("it ends");
    text.to_owned()
}
