//! Servers as processes of a test.

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A server's process that runs until it is dropped or killed.
pub(crate) struct Server {
    process: Child,
    command: Command,
    /// Returns true once the server on a port to which it listens answers.
    is_ready: fn(u16) -> bool,
    pub(crate) port: u16,
    pub(crate) folder: TempDir,
}

/// Longest wait for a server to listen, which takes at most a few seconds; only a test that fails
/// waits so long.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(120);

/// The program of dynalite, which `make need-test` installs.
const DYNALITE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/dynalite/node_modules/dynalite/cli.js");

impl Server {
    /// Starts memcached with additional arguments.
    pub(crate) fn memcached(more: impl FnOnce(&Path) -> Vec<String>) -> Self {
        Self::start("memcached", |port, folder| {
            let mut args: Vec<String> =
                ["-l", "127.0.0.1", "-m", "16", "-t", "1", "-U", "0", "-p"].map(str::to_owned).into();
            args.push(port.to_string());
            // It refuses to run as root without a user.
            args.extend(["-u".to_owned(), "root".to_owned()]);
            args.extend(more(folder));
            args
        })
    }

    /// Starts redis-server with additional arguments.
    pub(crate) fn redis(more: &[&str]) -> Self {
        Self::start("redis-server", |port, folder| {
            let (port, folder) = (port.to_string(), folder.display().to_string());
            let args = ["--port", &port, "--bind", "127.0.0.1", "--save", "", "--dir", &folder];
            args.iter().chain(more).map(|&arg| arg.to_owned()).collect()
        })
    }

    /// Starts dynalite, a server of DynamoDB's API that keeps tables in memory.
    pub(crate) fn dynalite() -> Self {
        let program = Path::new(DYNALITE);
        assert!(program.exists(), "{DYNALITE} is missing: make target/dynalite/ready");
        Self::start("node", |port, _| {
            let args = [DYNALITE, "--host", "127.0.0.1", "--createTableMs", "0", "--port"];
            args.iter().map(|&arg| arg.to_owned()).chain([port.to_string()]).collect()
        })
    }

    /// Starts ZooKeeper with additional lines of configuration.
    #[cfg(feature = "zookeeper")]
    pub(crate) fn zookeeper(more: impl FnOnce(&Path) -> String) -> Self {
        Self::start_until(serves_zookeeper, "java", |port, folder| {
            let jar = "/usr/share/java/zookeeper.jar";
            assert!(Path::new(jar).exists(), "zookeeper is not installed: apt-get install libzookeeper-java");
            let config = format!(
                "dataDir={}\nclientPort={port}\nadmin.enableServer=false\ntickTime=500\n{}\n",
                folder.join("data").display(),
                more(folder)
            );
            let file = folder.join("zoo.cfg");
            std::fs::write(&file, config).expect("a folder that can be written");
            let main = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
            let args = [
                "-Xmx128m",
                "-Dzookeeper.forceSync=no",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-cp",
                // Debian's archive does not name these parts of Netty, which TLS needs.
                &format!("{jar}:/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar"),
                main,
            ];
            args.iter().map(|&arg| arg.to_owned()).chain([file.display().to_string()]).collect()
        })
    }

    /// Starts Cassandra, whose programs `make test-stores` fetches.
    #[cfg(feature = "cassandra")]
    pub(crate) fn cassandra(package: &Path) -> Self {
        let (jars, scripts) =
            (package.join("../../target/cassandra/jars"), package.join("../../scripts/cassandra"));
        assert!(jars.exists(), "{} is missing: make target/cassandra/ready", jars.display());
        Self::start("java", |port, folder| {
            let config = std::fs::read_to_string(scripts.join("cassandra.yaml")).expect("a configuration");
            let config = config.replace("NATIVE_PORT", &port.to_string());
            let file = folder.join("cassandra.yaml");
            std::fs::write(&file, config.replace("STORAGE_PORT", &free_port().to_string()))
                .expect("a folder that can be written");
            let options = std::fs::read_to_string(scripts.join("java.options")).expect("options");
            let memory = ["-Xmx512m", "-XX:MaxDirectMemorySize=128m", "-XX:+UseSerialGC"];
            let own = [
                "-XX:TieredStopAtLevel=1".to_owned(),
                format!("-Dlogback.configurationFile={}", scripts.join("logback.xml").display()),
                format!("-Dcassandra.config=file://{}", file.display()),
                format!("-Dcassandra.storagedir={}", folder.join("data").display()),
                "-Dcassandra-foreground=yes".to_owned(),
                "-Dcassandra.skip_wait_for_gossip_to_settle=0".to_owned(),
                "-Dcassandra.ring_delay_ms=0".to_owned(),
                "-cp".to_owned(),
                format!("{}/*", jars.display()),
                "org.apache.cassandra.service.CassandraDaemon".to_owned(),
            ];
            let given = options.lines().chain(memory).map(str::to_owned);
            given.chain(own).collect()
        })
    }

    /// Stops the process until `resume`.
    #[cfg(any(feature = "cassandra", feature = "zookeeper"))]
    pub(crate) fn pause(&self) {
        self.signal("STOP");
    }

    /// Continues the process.
    #[cfg(any(feature = "cassandra", feature = "zookeeper"))]
    pub(crate) fn resume(&self) {
        self.signal("CONT");
    }

    #[cfg(any(feature = "cassandra", feature = "zookeeper"))]
    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.process.id().to_string()]).status();
        assert!(sent.expect("kill is there").success());
    }

    fn start(package: &str, args: impl FnOnce(u16, &Path) -> Vec<String>) -> Self {
        Self::start_until(|_| true, package, args)
    }

    fn start_until(
        is_ready: fn(u16) -> bool,
        package: &str,
        args: impl FnOnce(u16, &Path) -> Vec<String>,
    ) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let port = free_port();
        let mut command = Command::new(package);
        command.args(args(port, folder.path())).stdout(Stdio::null()).stderr(Stdio::null());
        let process = spawn(&mut command);
        Self { process, command, is_ready, port, folder }.ready()
    }

    fn ready(mut self) -> Self {
        self.wait();
        self
    }

    fn wait(&mut self) {
        until_ready(&mut self.process, &self.command, self.port, || (self.is_ready)(self.port))
            .unwrap_or_else(|status| panic!("{:?} ended: {status}", self.command));
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().and_then(|()| self.process.wait()).expect("it is ours");
    }

    /// Starts the server again on the same port; it is empty unless it is configured to persist.
    pub(crate) fn restart(&mut self) {
        self.process = spawn(&mut self.command);
        self.wait();
    }
}

/// Returns a port of this machine on which nothing listens.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port()
}

/// Waits until the server that `command` started listens on `port` and `is_ready`, or has ended
/// instead.
pub(crate) fn until_ready(
    process: &mut Child,
    command: &Command,
    port: u16,
    mut is_ready: impl FnMut() -> bool,
) -> Result<(), ExitStatus> {
    let start = Instant::now();
    while !is_listened_to(port) || !is_ready() {
        if let Some(status) = process.try_wait().expect("it is ours") {
            return Err(status);
        }
        assert!(start.elapsed() < START_TIMEOUT, "{command:?} does not listen");
        thread::yield_now();
    }
    Ok(())
}

/// True if a server listens on `port`. Without one, a connection may by chance use that port as its
/// own and connect to itself.
fn is_listened_to(port: u16) -> bool {
    let stream = TcpStream::connect(("127.0.0.1", port));
    stream.is_ok_and(|stream| stream.local_addr().is_ok_and(|address| address.port() != port))
}

/// Returns true if a ZooKeeper server accepts sessions.
#[cfg(feature = "zookeeper")]
fn serves_zookeeper(port: u16) -> bool {
    use std::io::{Read, Write};
    let mut text = String::new();
    let asked = TcpStream::connect(("127.0.0.1", port)).and_then(|mut stream| {
        // While it starts, it may drop a request and keep the connection.
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"srvr")?;
        stream.read_to_string(&mut text)
    });
    asked.is_ok() && text.starts_with("Zookeeper version")
}

fn spawn(command: &mut Command) -> Child {
    match command.spawn() {
        Ok(process) => process,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let package = match command.get_program().to_string_lossy().into_owned() {
                node if node == "node" => "nodejs".to_owned(),
                java if java == "java" => "openjdk-17-jre-headless".to_owned(),
                program => program,
            };
            panic!("{package} is not installed: apt-get install {package}, or `make need-test`");
        }
        Err(error) => panic!("{command:?}: {error}"),
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
