//! The five servers, and a node in front of them.

use std::path::Path;
use std::thread;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder};
use sherwood_config::Flags;
use sherwood_node::{Node, Setup};
use sherwood_policy::available_without_options;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_postgres::{Config, NoTls};

use crate::databases::{Database, PASSWORD};
use crate::servers::Server;
use crate::service::Service;

/// The backends' names.
pub(crate) const NAMES: [&str; BACKENDS] = ["mariadb", "postgres", "redis", "memcached", "service"];
pub(crate) const BACKENDS: usize = 5;
/// True for a server that still has its acknowledged writes after it was killed.
pub(crate) const KEEPS: [bool; BACKENDS] = [true, true, true, false, true];

/// Redis logs a write and syncs the log to the disk before it acknowledges the write.
const REDIS_KEEPS: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// The servers, in the order of [`NAMES`].
pub(crate) struct Fleet {
    mariadb: Database,
    postgres: Database,
    redis: Server,
    memcached: Server,
    service: Service,
    secrets: TempDir,
}

impl Fleet {
    /// Starts all servers and creates the databases' tables.
    pub(crate) fn start() -> Self {
        let (mariadb, postgres) = thread::scope(|scope| {
            let postgres = scope.spawn(|| Database::postgres(|_| Vec::new()));
            (Database::mariadb(|_| Vec::new()), postgres.join().expect("PostgreSQL starts"))
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            table_in_mariadb(&mariadb).await;
            table_in_postgres(&postgres).await;
        });
        let secrets = tempfile::tempdir().expect("a folder");
        std::fs::write(secrets.path().join("password"), PASSWORD).expect("it is ours");
        Self {
            mariadb,
            postgres,
            redis: Server::redis(&REDIS_KEEPS),
            memcached: Server::memcached(|_| Vec::new()),
            service: Service::start(),
            secrets,
        }
    }

    /// Starts a node with a gateway and all servers as backends.
    pub(crate) fn node(&self) -> Node {
        let text = self.configuration();
        let config =
            sherwood_config::parse("five.toml", &text, &Flags::default(), available_without_options());
        let setup = Setup::from_config(&config.expect("a valid configuration")).expect("nothing to open");
        Node::start(setup).expect("the node starts")
    }

    /// The node's configuration. Its timeouts are long enough for a busy machine, and its decisions
    /// move bytes between the backends during the test.
    fn configuration(&self) -> String {
        let databases = |kind: &str, database: &Database, write: &str| {
            let password = self.secrets.path().join("password");
            format!(
                "kind = \"{kind}\"\naddress = \"{}\"\nuser = \"shop\"\npassword_file = \"{}\"\ndatabase = \"shop\"\n\
                 query = \"SELECT id, body FROM item WHERE id IN (:keys)\"\nwrite = \"{write}\"\n\
                 delete = \"DELETE FROM item WHERE id = :key\"\n",
                database.address(),
                Path::display(&password),
            )
        };
        let mariadb =
            "INSERT INTO item (id, body) VALUES (:key, :value) ON DUPLICATE KEY UPDATE body = :value";
        let postgres = "INSERT INTO item (id, body) VALUES (:key, :value) ON CONFLICT (id) DO UPDATE SET body = excluded.body";
        let item = format!("http://{}/items/{{key}}", self.service.address);
        let stores = [
            databases("mysql", &self.mariadb, mariadb),
            databases("postgres", &self.postgres, postgres),
            format!("kind = \"redis\"\naddress = \"{}\"\n", self.redis.address()),
            format!("kind = \"memcached\"\naddress = \"{}\"\n", self.memcached.address()),
            format!(
                "kind = \"http\"\nurl = \"{item}\"\nwrite = \"PUT {item}\"\ndelete = \"DELETE {item}\"\n"
            ),
        ];
        let backend = |(name, store): (&str, String)| {
            format!(
                "[[backend]]\nname = \"{name}\"\ntimeout = \"60s\"\n\
                 dispatch.probe = {{ failures_max = 5, interval_min = \"10ms\", interval_max = \"100ms\" }}\n\
                 [backend.store]\nconnect_timeout = \"30s\"\nanswer_timeout = \"50s\"\n{store}"
            )
        };
        let backends: Vec<String> = NAMES.into_iter().zip(stores).map(backend).collect();
        format!(
            "[admin]\nbind = \"127.0.0.1:0\"\n[control]\ndelta = \"100ms\"\nrbc_window = \"1s\"\n{}",
            backends.concat()
        )
    }

    /// Kills a server (SIGKILL).
    pub(crate) fn kill(&mut self, backend: usize) {
        match backend {
            0 => self.mariadb.kill(),
            1 => self.postgres.kill(),
            2 => self.redis.kill(),
            3 => self.memcached.kill(),
            _ => self.service.kill(),
        }
    }

    /// Starts a server again at the same port, with its durable data.
    pub(crate) fn restart(&mut self, backend: usize) {
        match backend {
            0 => self.mariadb.restart(),
            1 => self.postgres.restart(),
            2 => self.redis.restart(),
            3 => self.memcached.restart(),
            _ => self.service.restart(),
        }
    }
}

async fn table_in_mariadb(server: &Database) {
    let opts = OptsBuilder::default().ip_or_hostname("127.0.0.1").tcp_port(server.port);
    let opts = opts.user(Some("shop")).pass(Some(PASSWORD)).db_name(Some("shop")).prefer_socket(false);
    let mut shop = Conn::new(opts).await.expect("the shop logs in");
    let table = "CREATE TABLE item (id VARCHAR(40) COLLATE utf8mb4_bin PRIMARY KEY, body VARCHAR(80))";
    shop.query_drop(table).await.expect("the shop may make tables");
    shop.disconnect().await.expect("all is said");
}

async fn table_in_postgres(server: &Database) {
    let socket = TcpStream::connect(("127.0.0.1", server.port)).await.expect("it listens");
    let mut config = Config::new();
    config.user("shop").password(PASSWORD).dbname("shop");
    let (shop, connection) = config.connect_raw(socket, NoTls).await.expect("the shop logs in");
    tokio::spawn(connection);
    let table = "CREATE TABLE item (id text PRIMARY KEY, body text)";
    shop.batch_execute(table).await.expect("the shop may make tables");
}
