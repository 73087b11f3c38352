//! `sherwood load`: turns the arguments into a plan, runs it, and reports the outcome.
//!
//! Options that do not apply to the kind of target or workload are refused, never ignored: a
//! measurement under other conditions than the user believes is worse than none.

mod keys;
mod security;
mod tenants;

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use sherwood_load::tenants::TenantsReport;
use sherwood_load::{Control, Gaps, LoadError, Pace, Report, Target, TargetKind, cache, http};
use sherwood_model::deadline_within;
use sherwood_workload::onerf::Model;
use sherwood_workload::trace::{built_in, built_in_names};
use sherwood_workload::{KeyValueOptions, ValueSizes};

use self::tenants::TenantsPlan;
use crate::exit::Failure;
use crate::token::TokenFile;
use crate::{duration, interrupt, out};

/// Options of `sherwood load`, as typed.
#[derive(Args, Clone, Debug)]
#[command(
    allow_negative_numbers = true,
    after_help = "Examples:
  sherwood load --target memcached://127.0.0.1:11211                           as fast as one connection can
  sherwood load --target memcached://127.0.0.1:11211 --rate 20000              latency from the intended start
  sherwood load --target memcached://127.0.0.1:11211 --trace orm-busy --look-aside --json
  sherwood load --target redis://127.0.0.1:6379 --batch 20                     MGETs of 20 keys
  sherwood load --target redis://127.0.0.1:6379 --value-size lognormal:1100,1.8,900KiB
  sherwood load --target http://127.0.0.1:8080 --backend catalog --batch 50 --rate 500
  sherwood load --target http://127.0.0.1:8080 --backend users --keys-from users.txt
  sherwood load --target rediss://cache:6380 --ca ca.pem --password-file users
  sherwood load --target http://127.0.0.1:8080 --mix onerf --rate 100 --duration 5m
  sherwood load --target redis://127.0.0.1:6379 --scenario tenants.json --passwords users

Ctrl-C ends the load and reports what there is. Exit status: 0 done, 1 failed or every operation did, 2 bad usage."
)]
pub(crate) struct LoadArgs {
    /// What to send load to: memcached://host:port, memcached-binary://host:port (its binary
    /// protocol), redis://host:port, or http://host:port (a gateway, POST /v1/requests); with TLS
    /// memcacheds://, memcacheds-binary://, rediss://, https://
    #[arg(long)]
    target: Target,
    /// Operations (gateway: requests) per second, whatever the answers do; latency counts from the
    /// intended start
    #[arg(long, value_name = "N", conflicts_with = "closed")]
    rate: Option<f64>,
    /// Start an operation whenever one ends [default without --rate]
    #[arg(long)]
    closed: bool,
    /// How the starts of --rate are spread
    #[arg(long, value_enum, value_name = "KIND", requires = "rate")]
    gaps: Option<GapsArg>,
    /// Connections [default: 1; 16 with --rate]; gateway: the most requests under way [default: 1;
    /// 4096 with --rate]
    #[arg(long, value_name = "N")]
    connections: Option<usize>,
    /// Operations under way per connection [default: 1; 16 with --rate]
    #[arg(long, value_name = "N")]
    pipeline: Option<usize>,
    /// Start nothing after this long: 500ms, 10s, 2m [default: 10s; with --trace or --ops, their
    /// end]
    #[arg(long, value_name = "TIME", value_parser = load_time)]
    duration: Option<Duration>,
    /// End after so many operations (gateway: requests)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    ops: Option<u64>,
    /// Distinct keys [default: 100000]
    #[arg(long, value_name = "N")]
    keys: Option<u64>,
    #[command(flatten)]
    key_args: keys::KeyArgs,
    /// Bytes of a key [default: 20]
    #[arg(long, value_name = "BYTES")]
    key_size: Option<usize>,
    /// Bytes of a value: N, uniform:MIN-MAX, lognormal:MEDIAN,SIGMA,MAX (larger draws become MAX)
    /// or choice:N,N,… (equally likely), each plain or as in 64KiB, up to 128MiB; each set draws a
    /// size, whatever its key [default: 100]; RobinHood traces bring their own sizes
    #[arg(long, value_name = "SIZES")]
    value_size: Option<ValueSizes>,
    /// Exponent of the keys' popularity, 0 for uniform [default: 0.99]
    #[arg(long, value_name = "THETA")]
    zipf: Option<f64>,
    /// Share of gets; the others are sets [default: 0.9]
    #[arg(long, value_name = "RATIO")]
    get_ratio: Option<f64>,
    /// Distinct keys of one get (a multi-get, an MGET) or of one request to --backend [default: 1]
    #[arg(long, value_name = "N")]
    batch: Option<usize>,
    /// What keys begin with, in front of --key-size, each prefix a partition of its own: a/,b/;
    /// caches only
    #[arg(long, value_name = "PREFIX,…", value_delimiter = ',')]
    prefixes: Vec<String>,
    /// Ask this backend for keys of the key space, --batch a request; gateway only
    #[arg(long, value_name = "NAME", conflicts_with_all = ["mix", "trace"])]
    backend: Option<String>,
    /// Replay a trace once: a file, or orm-busy or orm-night, which are built in
    #[arg(long, value_name = "FILE|NAME", conflicts_with = "mix")]
    trace: Option<PathBuf>,
    /// Format of the trace; the built-in ones are cache2k
    #[arg(long, value_enum, requires = "trace")]
    format: Option<Format>,
    /// Draw requests from a workload model; gateway only
    #[arg(long, value_enum)]
    mix: Option<Mix>,
    /// Scale of the mix: demo, s100, s10 or full [default: demo]
    #[arg(long, requires = "mix")]
    profile: Option<String>,
    /// Send the loads of all tenants of this scenario, in JSON or TOML (*.toml), each with its own
    /// connections; caches only
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rate", "connections", "pipeline", "duration", "ops", "keys", "key_size",
        "value_size", "zipf", "get_ratio", "batch", "prefixes", "backend", "trace", "mix", "deadline_ms", "values", "look_aside"])]
    scenario: Option<PathBuf>,
    /// Part of the scenario's keys, cache and rates that is used [default: 1]
    #[arg(long, value_name = "SCALE", requires = "scenario")]
    scale: Option<f64>,
    /// Log in each tenant as the user of its name, with the password in this file of user:password
    /// lines, such as a listener's `auth_file`
    #[arg(long, value_name = "FILE", requires = "scenario")]
    passwords: Option<PathBuf>,
    /// Length of the intervals whose throughput is reported for each tenant [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = load_time, requires = "scenario")]
    interval: Option<Duration>,
    #[command(flatten)]
    security: security::Security,
    #[command(flatten)]
    token: TokenFile,
    /// Deadline of every operation, in milliseconds from its start, up to 24 h: `deadline_ms` of
    /// requests to a gateway, flag U of memcached's meta commands (rounded up to whole
    /// milliseconds); the report says how many were missed and rejected
    #[arg(long, value_name = "MS", value_parser = deadline)]
    deadline_ms: Option<Duration>,
    /// Ask the gateway for the values, not only for the outcome of each key
    #[arg(long)]
    values: bool,
    /// Set the value after a get that misses
    #[arg(long)]
    look_aside: bool,
    /// Seed of the keys, the value sizes, the requests and the arrivals
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the report as one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum GapsArg {
    /// As of many independent users (the default)
    Poisson,
    /// All equal
    Fixed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Packed object accesses, xz or not
    Cache2k,
    /// Requests as JSON lines
    Robinhood,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mix {
    /// The page-rendering service of 20 backends
    Onerf,
}

/// Everything a run needs, validated as far as possible without the target.
enum LoadPlan {
    Cache(cache::Options, cache::Workload),
    Http(http::Options, http::Workload),
    Tenants(TenantsPlan),
}

/// Runs the load and prints its report.
///
/// Fails when the target is unreachable, when the run ends early, and when no operation succeeded:
/// a script must not mistake the rate of refusals for a result.
pub(crate) fn run(args: &LoadArgs) -> Result<(), Failure> {
    let mut plan = plan(args).map_err(Failure::Usage)?;
    if let LoadPlan::Http(options, workload) = &mut plan {
        options.bearer = args.token.read()?.and_then(|token| http::Bearer::new(&token));
        let asked_for = args.key_size.is_some() || args.key_args.given().iter().any(|(_, given)| *given);
        if !asked_for {
            keys::suit(options, workload).map_err(failure)?;
        }
    }
    let examples = examples(&plan);
    let control = Arc::new(Control::default());
    let stop = Arc::clone(&control);
    interrupt::on_interrupt(move || stop.stop()).map_err(Failure::failed)?;
    let progress = Progress::start(&control);
    let outcome = execute(plan, &control);
    drop(progress);
    let outcome = outcome.map_err(failure)?;
    let report = match outcome {
        Outcome::One(report) => *report,
        Outcome::Tenants(report) => return tenants::show(&report, args.json),
    };
    let text = if args.json {
        serde_json::to_string(&report).expect("a report has string keys only") + "\n"
    } else {
        report.to_string()
    };
    out::print(&text)?;
    if let Some(warning) = keys::warning(args.target.kind, &report, &examples) {
        out::say(format_args!("sherwood: {warning}"));
    }
    verdict(&report)
}

fn failure(error: LoadError) -> Failure {
    match error {
        LoadError::Connect { .. }
        | LoadError::Login { .. }
        | LoadError::Resolve { .. }
        | LoadError::Tls { .. }
        | LoadError::System { .. } => Failure::failed(error),
        _ => Failure::usage(error),
    }
}

/// Returns examples of the keys of a key space; none for another workload.
fn examples(plan: &LoadPlan) -> String {
    match plan {
        LoadPlan::Cache(_, cache::Workload::KeyValue { options, seed, .. })
        | LoadPlan::Http(_, http::Workload::KeySpace { options, seed, .. }) => keys::examples(options, *seed),
        _ => String::new(),
    }
}

/// The report of a run.
enum Outcome {
    One(Box<Report>),
    Tenants(TenantsReport),
}

fn execute(plan: LoadPlan, control: &Control) -> Result<Outcome, LoadError> {
    Ok(Outcome::One(Box::new(match plan {
        LoadPlan::Cache(options, workload) => cache::run(&options, workload, control, |_| {})?,
        LoadPlan::Http(options, workload) => {
            let open = options.pace != Pace::Closed;
            http::run(&options, workload, control, |_| {})?.report(open)
        }
        LoadPlan::Tenants(plan) => return Ok(Outcome::Tenants(plan.run(control)?)),
    })))
}

/// Returns an error for an unsuccessful run, and prints warnings.
fn verdict(report: &Report) -> Result<(), Failure> {
    let Report { ops, errors, unsent, .. } = *report;
    let first_error = report.first_error.as_ref().map(|error| format!("the first error: {error}"));
    let all_failed = (ops > 0 && errors == ops).then(|| {
        let refused = ops - unsent;
        format!("every operation failed: {refused} were refused or broken off, {unsent} were never sent")
    });
    let incomplete = report.incomplete_because.as_ref().map(|reason| format!("incomplete: {reason}"));
    let failed = all_failed.is_some() || !report.complete;
    let said: Vec<String> = [first_error, all_failed, incomplete].into_iter().flatten().collect();
    if failed {
        return Err(Failure::Failed(said.join("\n")));
    }
    said.iter().for_each(|line| out::say(format_args!("sherwood: {line}")));
    Ok(())
}

fn plan(args: &LoadArgs) -> Result<LoadPlan, String> {
    if let Some(file) = &args.scenario {
        return Ok(LoadPlan::Tenants(TenantsPlan::new(args, file)?));
    }
    match args.target.kind {
        TargetKind::Cache(protocol) => plan_for_cache(args, protocol),
        TargetKind::Gateway => plan_for_gateway(args),
    }
}

fn plan_for_cache(args: &LoadArgs, protocol: cache::Protocol) -> Result<LoadPlan, String> {
    let for_gateways = [
        ("--mix", args.mix.is_some()),
        ("--backend", args.backend.is_some()),
        ("--values", args.values),
        ("--token-file", args.token.is_given()),
    ];
    refuse_given(&for_gateways, "an http:// target only")?;
    if protocol != cache::Protocol::Memcached {
        let stated = [("--deadline-ms", args.deadline_ms.is_some())];
        refuse_given(&stated, "a memcached:// or http:// target only: the other protocols state none")?;
    }
    Ok(LoadPlan::Cache(cache_options(args, protocol)?, cache_workload(args)?))
}

fn plan_for_gateway(args: &LoadArgs) -> Result<LoadPlan, String> {
    let pipelined = [
        ("--pipeline", args.pipeline.is_some()),
        ("--look-aside", args.look_aside),
        ("--prefixes", !args.prefixes.is_empty()),
        ("--password-file", args.security.has_password()),
    ];
    refuse_given(&pipelined, CACHES_ONLY)?;
    Ok(LoadPlan::Http(http_options(args)?, http_workload(args)?))
}

/// The targets of options that a gateway does not support.
const CACHES_ONLY: &str = "a memcached:// or redis:// target only";

fn pace(args: &LoadArgs) -> Pace {
    match (args.rate, args.gaps) {
        (None, _) => Pace::Closed,
        (Some(rate_per_s), Some(GapsArg::Fixed)) => Pace::Open { rate_per_s, gaps: Gaps::Fixed },
        (Some(rate_per_s), _) => Pace::Open { rate_per_s, gaps: Gaps::Poisson },
    }
}

/// Returns the duration of the run; a load without an end of its own gets a default.
fn duration(args: &LoadArgs) -> Option<Duration> {
    let ends = args.trace.is_some() || args.ops.is_some();
    args.duration.or((!ends).then_some(Duration::from_secs(10)))
}

fn cache_options(args: &LoadArgs, protocol: cache::Protocol) -> Result<cache::Options, String> {
    let usual = if args.rate.is_some() { 16 } else { 1 };
    Ok(cache::Options {
        protocol,
        address: args.target.address.clone(),
        pace: pace(args),
        connections: args.connections.unwrap_or(usual),
        pipeline: args.pipeline.unwrap_or(usual),
        duration: duration(args),
        operations_max: args.ops,
        look_aside: args.look_aside,
        deadline: args.deadline_ms,
        tls: args.security.tls(&args.target)?,
        login: args.security.login()?,
        seed: args.seed,
    })
}

fn cache_workload(args: &LoadArgs) -> Result<cache::Workload, String> {
    let Some(trace) = &args.trace else {
        let multi_get = args.batch.is_some_and(|batch| batch > 1);
        let single = [
            ("--look-aside", args.look_aside && multi_get),
            ("--deadline-ms", args.deadline_ms.is_some() && multi_get),
        ];
        refuse_given(&single, "gets of one key: --batch 1")?;
        return Ok(cache::Workload::KeyValue {
            options: key_value_options(args)?,
            batch: args.batch.unwrap_or(1),
            prefixes: args.prefixes.clone(),
            seed: args.seed,
        });
    };
    refuse_given(&key_space_given(args), "a load without --trace only")?;
    refuse_given(&[("--get-ratio", args.get_ratio.is_some())], "a load without --trace only")?;
    match format_of(trace, args.format)? {
        Format::Cache2k => {
            let value_sizes = args.value_size.clone().unwrap_or_default();
            Ok(cache::Workload::Cache2k { input: open(trace)?, value_sizes, seed: args.seed })
        }
        Format::Robinhood => {
            refuse_given(
                &[("--value-size", args.value_size.is_some())],
                "a cache2k trace: RobinHood's holds sizes",
            )?;
            Ok(cache::Workload::RobinHood { input: open(trace)? })
        }
    }
}

fn key_value_options(args: &LoadArgs) -> Result<KeyValueOptions, String> {
    let usual = KeyValueOptions::default();
    let options = KeyValueOptions {
        names: usual.names,
        keys: args.keys.unwrap_or(usual.keys),
        key_bytes: args.key_size.unwrap_or(usual.key_bytes),
        value_sizes: args.value_size.clone().unwrap_or(usual.value_sizes),
        zipf: args.zipf.unwrap_or(usual.zipf),
        get_ratio: args.get_ratio.unwrap_or(usual.get_ratio),
    };
    args.key_args.named(options)
}

fn http_options(args: &LoadArgs) -> Result<http::Options, String> {
    let usual = http::Options::default();
    let outstanding_max = if args.rate.is_some() { usual.outstanding_max } else { 1 };
    Ok(http::Options {
        address: args.target.address.clone(),
        pace: pace(args),
        phases: duration(args).into_iter().collect(),
        requests_max: args.ops,
        outstanding_max: args.connections.unwrap_or(outstanding_max),
        values: args.values,
        deadline: args.deadline_ms,
        tls: args.security.tls(&args.target)?,
        seed: args.seed,
        ..usual
    })
}

fn http_workload(args: &LoadArgs) -> Result<http::Workload, String> {
    let writes = [("--value-size", args.value_size.is_some()), ("--get-ratio", args.get_ratio.is_some())];
    refuse_given(&writes, "a memcached:// or redis:// target only: a gateway is only read from")?;
    if let Some(backend) = args.backend.clone() {
        let (options, batch) = (key_value_options(args)?, args.batch.unwrap_or(1));
        return Ok(http::Workload::KeySpace { backend, options, batch, seed: args.seed });
    }
    refuse_given(
        &key_space_given(args),
        "a memcached:// or redis:// target, or an http:// target with --backend",
    )?;
    match (&args.trace, args.mix) {
        (None, Some(Mix::Onerf)) => {
            let profile = args.profile.clone().unwrap_or_else(|| "demo".to_owned());
            Ok(http::Workload::Mix { model: Arc::new(Model::onerf()), profile, seed: args.seed })
        }
        (Some(trace), None) => match format_of(trace, args.format)? {
            Format::Robinhood => Ok(http::Workload::RobinHood { input: open(trace)? }),
            Format::Cache2k => {
                Err("a cache2k trace holds single accesses, not requests: replay it against a \
                                    memcached:// or redis:// target, or give a trace with --format robinhood"
                    .to_owned())
            }
        },
        _ => Err("an http:// target needs --mix onerf, --backend NAME, or --trace FILE --format robinhood"
            .to_owned()),
    }
}

fn key_space_given(args: &LoadArgs) -> [(&'static str, bool); 7] {
    let [keys_from, key_format] = args.key_args.given();
    [
        keys_from,
        key_format,
        ("--keys", args.keys.is_some()),
        ("--key-size", args.key_size.is_some()),
        ("--zipf", args.zipf.is_some()),
        ("--batch", args.batch.is_some()),
        ("--prefixes", !args.prefixes.is_empty()),
    ]
}

/// Refuses the first of `options` that was given, since the options apply only to `applies_to`.
fn refuse_given(options: &[(&str, bool)], applies_to: &str) -> Result<(), String> {
    match options.iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(format!("{option} applies to {applies_to}; leave it out")),
        None => Ok(()),
    }
}

/// Returns the built-in trace called `trace`, if there is one. A file of that name can be given as
/// `./orm-busy`.
fn named(trace: &Path) -> Option<&'static [u8]> {
    trace.to_str().and_then(built_in)
}

fn format_of(trace: &Path, format: Option<Format>) -> Result<Format, String> {
    match (named(trace), format) {
        (Some(_), None | Some(Format::Cache2k)) => Ok(Format::Cache2k),
        (Some(_), Some(Format::Robinhood)) => {
            Err(format!("the built-in trace {} is cache2k", trace.display()))
        }
        (None, Some(format)) => Ok(format),
        (None, None) => Err(format!(
            "which format is the trace {}? add --format cache2k or --format robinhood; built in are: {}",
            trace.display(),
            built_in_names().collect::<Vec<_>>().join(", ")
        )),
    }
}

fn open(trace: &Path) -> Result<Box<dyn BufRead + Send>, String> {
    if let Some(bytes) = named(trace) {
        return Ok(Box::new(Cursor::new(bytes)));
    }
    let file =
        File::open(trace).map_err(|error| format!("opening the trace {}: {error}", trace.display()))?;
    Ok(Box::new(BufReader::new(file)))
}

fn deadline(text: &str) -> Result<Duration, String> {
    let ms: f64 =
        text.parse().map_err(|_| format!("{text:?} is not a number of milliseconds, such as 50"))?;
    deadline_within(ms).map_err(|error| error.to_string())
}

fn load_time(text: &str) -> Result<Duration, String> {
    duration::between(Duration::from_millis(1), Duration::from_secs(7 * 86_400), text)
}

/// A progress line on the terminal, updated every second and removed when dropped. Prints nothing
/// when standard error is not a terminal.
struct Progress {
    thread: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    fn start(control: &Arc<Control>) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self { thread: None };
        }
        let (control, begun) = (Arc::clone(control), Instant::now());
        let (end, ended) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            while ended.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
                let line = format!("\r{:>6.0} s  {} done ", begun.elapsed().as_secs_f64(), control.done());
                let _ = std::io::stderr().write_all(line.as_bytes());
            }
            let _ = std::io::stderr().write_all(b"\r\x1b[K");
        });
        Self { thread: Some((end, thread)) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.thread.take() {
            drop(end);
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        load: LoadArgs,
    }

    fn planned(line: &str) -> Result<LoadPlan, String> {
        let words = std::iter::once("load").chain(line.split_whitespace());
        plan(&Cli::try_parse_from(words).map_err(|error| error.to_string())?.load)
    }

    fn cache_options_of(line: &str) -> cache::Options {
        match planned(line).unwrap() {
            LoadPlan::Cache(options, _) => options,
            _ => panic!("{line} is for a cache"),
        }
    }

    #[test]
    fn trace_is_replayed_once_in_order_by_default() {
        let options = cache_options_of("--target memcached://localhost:1 --trace orm-busy --look-aside");
        assert_eq!((options.pace, options.connections, options.pipeline), (Pace::Closed, 1, 1));
        assert_eq!((options.duration, options.look_aside, options.operations_max), (None, true, None));
    }

    #[test]
    fn target_of_load_selects_the_protocol() {
        let options = cache_options_of("--target redis://localhost:1/0 --batch 20");
        assert_eq!((options.protocol, options.address.as_str()), (cache::Protocol::Redis, "localhost:1"));
        let options = cache_options_of("--target memcached://localhost:1");
        assert_eq!(options.protocol, cache::Protocol::Memcached);
    }

    #[test]
    fn load_without_end_gets_a_duration_and_rate_gets_connections() {
        let options = cache_options_of("--target memcached://localhost:1 --rate 1000 --gaps fixed");
        assert_eq!(options.pace, Pace::Open { rate_per_s: 1_000.0, gaps: Gaps::Fixed });
        assert_eq!((options.connections, options.pipeline), (16, 16));
        assert_eq!(options.duration, Some(Duration::from_secs(10)));
        let options = cache_options_of("--target memcached://localhost:1 --ops 500");
        assert_eq!((options.duration, options.operations_max), (None, Some(500)));
    }

    #[test]
    fn mix_of_a_workload_model_is_planned_for_a_gateway() {
        let plan = planned("--target http://localhost:1 --mix onerf --rate 400 --duration 2m").unwrap();
        let LoadPlan::Http(options, http::Workload::Mix { profile, .. }) = plan else { panic!("not a mix") };
        assert_eq!((profile.as_str(), options.phases), ("demo", vec![Duration::from_secs(120)]));
        assert_eq!((options.outstanding_max, options.values), (4_096, false));
    }

    #[test]
    fn load_options_that_do_not_apply_to_target_or_workload_are_refused() {
        for (line, part) in [
            ("--target redis://localhost:1/5", "database 0"),
            ("--target redis://localhost:1 --mix onerf", "--mix applies to an http:// target only"),
            ("--target memcached://localhost:1 --mix onerf", "--mix applies to an http:// target only"),
            ("--target memcached://localhost:1 --values", "--values applies to"),
            ("--target memcached://localhost:1 --rate 5 --closed", "cannot be used with"),
            ("--target memcached://localhost:1 --gaps fixed", "--rate"),
            (
                "--target memcached://localhost:1 --trace orm-busy --keys 5",
                "--keys applies to a load without --trace",
            ),
            ("--target memcached://localhost:1 --trace x", "add --format cache2k"),
            ("--target memcached://localhost:1 --trace /none --format cache2k", "opening the trace /none"),
            ("--target memcached://localhost:1 --trace orm-busy --format robinhood", "is cache2k"),
            ("--target http://localhost:1", "needs --mix onerf"),
            ("--target http://localhost:1 --trace orm-busy", "single accesses"),
            ("--target http://localhost:1 --mix onerf --pipeline 2", "--pipeline applies to a memcached://"),
            ("--target http://localhost:1 --mix onerf --zipf 1", "--zipf applies to a memcached://"),
            (
                "--target http://localhost:1 --backend kv --get-ratio 1",
                "--get-ratio applies to a memcached://",
            ),
            (
                "--target memcached://localhost:1 --batch 2 --look-aside",
                "--look-aside applies to gets of one key",
            ),
            ("--target memcached://localhost:1 --backend kv", "--backend applies to an http:// target only"),
            (
                "--target memcached://localhost:1 --trace orm-busy --batch 2",
                "--batch applies to a load without",
            ),
            (
                "--target memcached://localhost:1 --trace orm-busy --prefixes a/",
                "--prefixes applies to a load",
            ),
            (
                "--target http://localhost:1 --backend kv --prefixes a/",
                "--prefixes applies to a memcached://",
            ),
            ("--target memcached://localhost:1 --scenario x.json --keys 5", "cannot be used with"),
            ("--target memcached://localhost:1 --scenario /none.json", "reading the scenario /none.json"),
            ("--target http://localhost:1 --scenario x.json", "--scenario applies to a memcached://"),
            ("--target memcached://localhost:1 --passwords x", "--scenario"),
            ("--target memcached://localhost:1 --value-size uniform:9-1", "MIN of 9 bytes is above MAX of 1"),
            (
                "--target memcached://localhost:1 --value-size 129MiB",
                "a value size of 135266304 bytes is out",
            ),
            (
                "--target http://localhost:1 --mix onerf --value-size 1",
                "--value-size applies to a memcached://",
            ),
            ("--target redis://localhost:1 --ca x", "--ca applies to a memcacheds://"),
            ("--target rediss://localhost:1 --ca /none", "/none"),
            ("--target redis://localhost:1 --key-format user", "one {n}"),
            ("--target redis://localhost:1 --keys-from /none", "--keys-from /none"),
            ("--target redis://localhost:1 --keys-from /none --keys 5", "cannot be used with"),
            ("--target redis://localhost:1 --password-file /none", "--password-file /none"),
            ("--target redis://localhost:1 --user ann", "--password-file"),
            ("--target http://localhost:1 --backend kv --password-file x", "--password-file applies to"),
            ("--target http://localhost:1 --key-format {n}", "--key-format applies to a memcached://"),
            ("--target memcached://localhost:1 --duration 10", "is no duration"),
            ("--target memcached://localhost:1 --duration 0s", "between 1ms and 7d"),
        ] {
            let error = planned(line).err().unwrap_or_default();
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn load_without_any_success_fails() {
        let report = |ops, errors, unsent| {
            let first_error = (errors > 0).then(|| "`ERR no`".to_owned());
            Report { ops, errors, unsent, first_error, complete: true, ..Report::default() }
        };
        assert!(verdict(&report(5, 4, 0)).is_ok());
        assert!(verdict(&report(0, 0, 0)).is_ok());
        let Err(Failure::Failed(said)) = verdict(&report(5, 5, 3)) else {
            panic!("nothing succeeded");
        };
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(lines[0], "the first error: `ERR no`");
        assert_eq!(lines[1], "every operation failed: 2 were refused or broken off, 3 were never sent");
        let early = Report {
            complete: false,
            incomplete_because: Some("stopped before its end".to_owned()),
            ..report(5, 0, 0)
        };
        let Err(Failure::Failed(said)) = verdict(&early) else { panic!("it ended early") };
        assert_eq!(said, "incomplete: stopped before its end");
    }
}
