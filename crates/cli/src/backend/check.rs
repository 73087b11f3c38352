//! `sherwood backend check`: a first look at every replica, before a node is started or while
//! something is wrong.
//!
//! It goes the way that a node's calls go, with the same options and from the same machine, so that
//! what it finds is what a node would find.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sherwood_node::config::{self, Backend, Flags, KvOptions, SqliteOptions, StoreOptions};
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
  sherwood backend check --config sherwood.toml
  sherwood backend check --config sherwood.toml catalog prices
  sherwood backend check --config sherwood.toml --json

Replicas are tried together, each with the options of the file: address, TLS, user, time-outs.
Nothing is written; memcached, Redis and HTTP services are asked for the key `sherwood-check`,
and that they have none is fine. An embedded store is opened, so a node that has it open is in
the way; one that is not there yet, and that a node would make, is not made.

Exit status: 0 all answer, 1 one or more do not, 2 the file or a name is wrong.")]
pub(crate) struct Args {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Backends to try; all where none is named
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// How long a replica may take
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = patience)]
    timeout: Duration,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A duration from 10 ms, in which nothing far away answers, to 10 minutes.
fn patience(text: &str) -> Result<Duration, String> {
    crate::duration::between(Duration::from_millis(10), Duration::from_secs(600), text)
}

/// Replicas that are tried at a time.
const AT_ONCE_MAX: usize = 32;

/// What came of one replica.
#[derive(Debug)]
pub(super) struct Tried {
    pub(super) backend: String,
    pub(super) replica: usize,
    pub(super) kind: String,
    pub(super) outcome: Result<Answer, Fault>,
}

/// What a replica answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) report: Report,
    /// Of a call for no keys, over a connection that stands; none of a store that is not there yet.
    pub(super) round_trip: Option<Duration>,
}

/// What is wrong with a replica.
#[derive(Debug)]
pub(super) struct Fault {
    /// One word, as in the node's counters.
    pub(super) cause: &'static str,
    /// What failed, and after its last `; ` what to do.
    pub(super) message: String,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let flags = Flags { config: Some(args.config.clone()), ..Flags::default() };
    let config =
        config::load(&flags, sherwood_policy::available_without_options()).map_err(Failure::usage)?;
    let backends = named(config.backends, &args.names)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::failed)?;
    let tried = try_all(&runtime, &backends, args.timeout)?;
    // A look-up of a name or an engine that hangs is not waited for.
    runtime.shutdown_background();
    out::print(&if args.json { table::json(&tried)? } else { table::text(&tried) })?;
    match tried.iter().filter(|one| one.outcome.is_err()).count() {
        0 => Ok(()),
        failed => Err(Failure::Failed(format!("{failed} of {} replicas failed", tried.len()))),
    }
}

/// The backends of these names; all where there are none.
fn named(backends: Vec<Backend>, names: &[String]) -> Result<Vec<Backend>, Failure> {
    let known = |name: &&String| backends.iter().any(|backend| backend.name == **name);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        let all: Vec<&str> = backends.iter().map(|backend| backend.name.as_str()).collect();
        return Err(Failure::Usage(format!("there is no backend `{unknown}`; there is {}", all.join(", "))));
    }
    Ok(backends.into_iter().filter(|backend| names.is_empty() || names.contains(&backend.name)).collect())
}

/// Tries the replicas of `backends`, some at a time, and answers in their order.
fn try_all(runtime: &Runtime, backends: &[Backend], timeout: Duration) -> Result<Vec<Tried>, Failure> {
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

fn replicas(backends: &[Backend]) -> impl Iterator<Item = (&str, usize, &StoreOptions)> {
    backends.iter().flat_map(|backend| {
        let replicas = backend.replicas.iter().enumerate();
        replicas.map(|(replica, options)| (backend.name.as_str(), replica, options))
    })
}

/// Opens a store, looks at it, and measures one call more.
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
    // The threads of an embedded store are joined, which may take its time.
    tokio::task::spawn_blocking(move || drop(store));
    answer
}

/// Where a node would make a store that is not there yet. What is there and no place for one, such
/// as a file for a directory, is opened, as is what the system cannot tell of: that says what is
/// wrong.
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
