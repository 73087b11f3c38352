//! `sherwood backend check`: connects to every replica, before a node is started or while something
//! is wrong.
//!
//! It uses the same code as a node, with the same options and from the same machine, so it finds
//! what a node would find.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sherwood_config::{BackendConfig, Flags, KvOptions, SqliteOptions, StoreOptions};
use sherwood_store::{OpenError, Report, Store, StoreError};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::table;
use crate::exit::Failure;
use crate::out;

/// Tries each replica and says what answers there, or what is wrong and what to do
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sherwood backend check sherwood.toml
  sherwood backend check sherwood.toml catalog prices
  sherwood backend check sherwood.toml --json

Replicas are tried together, each with the options of the file: address, TLS, user, time-outs.
Nothing is written; memcached, Redis, HTTP services and DynamoDB are asked for `sherwood-check`,
and that they have none is fine. An embedded store is opened, so a node that has it open is in
the way; one that is not there yet, and that a node would make, is not made.

Exit status: 0 all answer, 1 one or more do not, 2 the file or a name is wrong.")]
pub(crate) struct Args {
    /// Configuration file (TOML), unless --config has it, and backends to try; all if none is named
    #[arg(value_names = ["FILE", "NAME"], num_args = 1.., required_unless_present = "config")]
    file_and_names: Vec<String>,
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How long a replica may take
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_timeout)]
    timeout: Duration,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    /// The configuration file, and the names of the backends to try.
    fn file_and_names(&self) -> (PathBuf, &[String]) {
        match (&self.config, self.file_and_names.split_first()) {
            (None, Some((file, names))) => (PathBuf::from(file), names),
            (config, _) => (config.clone().unwrap_or_default(), &self.file_and_names),
        }
    }
}

/// Parses the timeout: 10 ms, which is too short for a remote server, to 10 minutes.
fn parse_timeout(text: &str) -> Result<Duration, String> {
    crate::duration::between(Duration::from_millis(10), Duration::from_secs(600), text)
}

/// Maximum of replicas that are checked at the same time.
const AT_ONCE_MAX: usize = 32;

/// The result of checking one replica.
#[derive(Debug)]
pub(super) struct Tried {
    pub(super) backend: String,
    pub(super) replica: usize,
    pub(super) kind: String,
    pub(super) outcome: Result<Answer, Fault>,
}

/// The result of a successful check of a replica.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) report: Report,
    /// Duration of a call for no keys over an established connection; none for a store that does
    /// not exist yet.
    pub(super) round_trip: Option<Duration>,
}

/// The result of a failed check of a replica.
#[derive(Debug)]
pub(super) struct Fault {
    /// The cause in one word, as in the node's counters.
    pub(super) cause: &'static str,
    /// The error and, after the last `; `, the remedy.
    pub(super) message: String,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let (file, names) = args.file_and_names();
    let flags = Flags { config: Some(file), ..Flags::default() };
    let config = sherwood_config::load(&flags, sherwood_policy::available_without_options())
        .map_err(Failure::usage)?;
    let backends = named(config.backends, names)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::failed)?;
    let tried = try_all(&runtime, &backends, args.timeout)?;
    // Do not wait for a hanging name lookup or storage engine.
    runtime.shutdown_background();
    out::print(&if args.json { table::json(&tried)? } else { table::text(&tried) })?;
    match tried.iter().filter(|one| one.outcome.is_err()).count() {
        0 => Ok(()),
        failed => Err(Failure::Failed(format!("{failed} of {} replicas failed", tried.len()))),
    }
}

/// Returns the backends with these names, or all when no name is given.
fn named(backends: Vec<BackendConfig>, names: &[String]) -> Result<Vec<BackendConfig>, Failure> {
    let known = |name: &&String| backends.iter().any(|backend| backend.name == **name);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        let all: Vec<&str> = backends.iter().map(|backend| backend.name.as_str()).collect();
        return Err(Failure::Usage(format!("there is no backend `{unknown}`; there is {}", all.join(", "))));
    }
    Ok(backends.into_iter().filter(|backend| names.is_empty() || names.contains(&backend.name)).collect())
}

/// Checks all replicas of `backends`, at most [`AT_ONCE_MAX`] at a time; results are in the order
/// of the configuration.
fn try_all(runtime: &Runtime, backends: &[BackendConfig], timeout: Duration) -> Result<Vec<Tried>, Failure> {
    let turns = Arc::new(Semaphore::new(AT_ONCE_MAX));
    let mut tasks = JoinSet::new();
    for (place, (backend, replica, options)) in replicas(backends).enumerate() {
        let (backend, options, turns) = (backend.to_owned(), options.clone(), Arc::clone(&turns));
        let work = async move {
            let _turn = turns.acquire().await;
            let kind = options.kind().to_string();
            let late = || Fault {
                cause: "late",
                message: format!(
                    "no answer within {timeout:?}; see whether it hangs, or give it a longer --timeout"
                ),
            };
            let outcome = tokio::time::timeout(timeout, look(backend.clone(), options)).await;
            (place, Tried { backend, replica, kind, outcome: outcome.unwrap_or_else(|_| Err(late())) })
        };
        tasks.spawn_on(work, runtime.handle());
    }
    let mut tried = runtime.block_on(async {
        let mut tried = Vec::new();
        while let Some(one) = tasks.join_next().await {
            tried.push(one.map_err(Failure::failed)?);
        }
        Ok::<_, Failure>(tried)
    })?;
    tried.sort_by_key(|(place, _)| *place);
    Ok(tried.into_iter().map(|(_, one)| one).collect())
}

fn replicas(backends: &[BackendConfig]) -> impl Iterator<Item = (&str, usize, &StoreOptions)> {
    backends.iter().flat_map(|backend| {
        let replicas = backend.replicas.iter().enumerate();
        replicas.map(|(replica, options)| (backend.name.as_str(), replica, options))
    })
}

/// Opens a store, checks it, and measures the duration of one more call to it.
async fn look(name: String, options: StoreOptions) -> Result<Answer, Fault> {
    if let Some(path) = to_be_made(&options) {
        let details = vec![format!("nothing is at {} yet; a node makes it at its start", path.display())];
        let report = Report { server: format!("{} in this process", options.kind()), details };
        return Ok(Answer { report, round_trip: None });
    }
    let opened = tokio::task::spawn_blocking(move || sherwood_store::open(&name, &options)).await;
    let store = match opened {
        Ok(opened) => {
            opened.map_err(|error: OpenError| Fault { cause: "open", message: error.to_string() })?
        }
        Err(panicked) => return Err(Fault { cause: "open", message: panicked.to_string() }),
    };
    let answer = measure(&*store)
        .await
        .map_err(|error| Fault { cause: error.cause().label(), message: error.explanation() });
    // Joining the threads of an embedded store may take long.
    tokio::task::spawn_blocking(move || drop(store));
    answer
}

/// Returns the path of an embedded store that does not exist yet and that a node would create. When
/// the path exists and is unsuitable, such as a file in place of a directory, or cannot be
/// examined, returns none: opening it then reports the error.
fn to_be_made(options: &StoreOptions) -> Option<&Path> {
    let (path, is_empty): (_, fn(&Path, &Metadata) -> bool) = match options {
        StoreOptions::Kv(KvOptions { path, .. }) => (path, |path, there| {
            there.is_dir() && path.read_dir().is_ok_and(|mut entries| entries.next().is_none())
        }),
        StoreOptions::Sqlite(SqliteOptions { path, query: None, .. }) => {
            (path, |_, there| there.is_file() && there.len() == 0)
        }
        _ => return None,
    };
    let nothing = match path.metadata() {
        Err(error) => error.kind() == ErrorKind::NotFound,
        Ok(there) => is_empty(path, &there),
    };
    nothing.then_some(path)
}

async fn measure(store: &dyn Store) -> Result<Answer, StoreError> {
    let report = store.check().await?;
    let began = Instant::now();
    store.get_many(Vec::new()).await?;
    Ok(Answer { report, round_trip: Some(began.elapsed()) })
}
