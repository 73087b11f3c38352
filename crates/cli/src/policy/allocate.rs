//! `sherwood policy allocate`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::builder::PossibleValuesParser;
use serde::Serialize;
use sherwood_model::{TenantId, misread, units::quoted};
use sherwood_policy::tenants::{Division, TenantOptions, by_name, dividing};

use super::input::{File, Input, NAMES};
use super::table;
use crate::exit::Failure;
use crate::out;

/// Divides cache, read units, write units and network among tenants, once
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sherwood policy allocate --policy hare --input examples/tenants/files.json
  sherwood policy allocate --policy drf --input examples/tenants/units.json --json
  sherwood policy allocate --policy hare --input examples/tenants/working-set-4m.json --reserve

The input is one JSON document:
  {\"params\": {\"cache_delta_bytes\": 33554432, \"min_cache_size_bytes\": 10485760},
   \"totals\": {\"cache_bytes\": …, \"db_rcu\": 2000, \"db_wcu\": 2000, \"net_bw\": …},
   \"tenants\": [{\"name\": \"gold\", \"base\": {… as totals}, \"net_alpha\": 0.475,
     \"demand_if_miss\": {\"db_rcu\": 0.95, \"db_wcu\": 0.05, \"net_bw\": 1032},
     \"mrc\": {\"ticks_bytes\": […], \"miss_ratio\": […]}}, …]}

Demand is per average request, as if it missed. A hit saves all read units, no write units, and the
share net_alpha of the network. The miss ratio is 1 without cache, linear between two ticks and
constant after the last. A tenant without a base gets a share of the totals by its weight (1); min,
like base, is the least that hare gives it. Other fields are ignored.

Exit status: 0 done, 1 failed, 2 bad usage or input.")]
pub(crate) struct Args {
    /// The policy
    #[arg(long, value_parser = PossibleValuesParser::new(dividing().iter().copied()))]
    policy: String,
    /// The input file, or - for standard input
    #[arg(long, value_name = "FILE")]
    input: PathBuf,
    /// Keep in reserve the rates that raise no tenant's least throughput, instead of dividing them
    #[arg(long)]
    reserve: bool,
    /// Print the decision as one JSON document
    #[arg(long)]
    json: bool,
}

/// A decision; the fields of the JSON document.
#[derive(Debug, Serialize)]
struct Report<'a> {
    policy: &'a str,
    allocation: Vec<Allocation>,
    /// Requests per second of each tenant by the model, 1e15 if no resource limits them.
    throughput: Vec<f64>,
    /// Throughput divided by that at the base; 1 for a tenant that needs no resource there.
    normalized: &'a [f64],
    /// Least normalized throughput.
    gain: f64,
    /// Upper bound of the gain of any allocation.
    #[serde(skip_serializing_if = "Option::is_none")]
    bound: Option<f64>,
    trades: Vec<TradeReport<'a>>,
    /// Median time of a decision.
    decision_us: f64,
}

#[derive(Debug, Serialize)]
struct Allocation {
    cache_bytes: u64,
    db_rcu: f64,
    db_wcu: f64,
    net_bw: f64,
}

#[derive(Debug, Serialize)]
struct TradeReport<'a> {
    donor: &'a str,
    receiver: &'a str,
    cache_bytes: u64,
    db_rcu: f64,
    db_wcu: f64,
    net_bw: f64,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let input = read(args)?;
    for note in &input.notes {
        out::say(format_args!("sherwood: {note}"));
    }
    let options = TenantOptions { chunk_bytes: input.chunk_bytes, conserving: !args.reserve };
    let mut policy = by_name(&args.policy, options).map_err(Failure::usage)?;
    let (division, time) = timed(|| policy.divide(&input.tenants));
    let throughput: Vec<f64> = (0..input.tenants.len())
        .map(|index| {
            let rates = division.rates.row(TenantId::from_index(index));
            input.tenants.throughput(index, division.bytes[index], rates)
        })
        .collect();
    if args.json {
        let report = report(&input, &args.policy, &division, throughput, time);
        let text = serde_json::to_string(&report).expect("a report has string keys only");
        return out::print(&(text + "\n"));
    }
    out::print(&table::text(&input, &division, &throughput, time))
}

fn read(args: &Args) -> Result<Input, Failure> {
    let name = args.input.display();
    let text = if args.input.as_os_str() == "-" {
        sherwood_textfile::input_from(std::io::stdin().lock())
    } else {
        sherwood_textfile::input(&args.input)
    };
    let text = text.map_err(|error| Failure::failed(format!("reading the input {name}: it {error}")))?;
    let file: File = serde_json::from_str(&text).map_err(|error| {
        let line = text.lines().nth(error.line().saturating_sub(1)).unwrap_or_default().trim();
        Failure::usage(format!(
            "{name}: {}, at {:?}; `sherwood policy allocate --help` shows the format",
            misread::json_file(&error),
            quoted(line)
        ))
    })?;
    file.check().map_err(|error| Failure::usage(format!("{name}: {error}")))
}

/// Most repetitions of a decision for its median time, and the time after which no other begins.
const REPETITIONS_MAX: usize = 9;
const REPETITION_TIME: Duration = Duration::from_millis(50);

/// Returns the decision and the median time it takes. Policies are pure, so it may be repeated.
fn timed(mut decide: impl FnMut() -> Division) -> (Division, Duration) {
    let begun = Instant::now();
    let mut division = decide();
    let mut times = vec![begun.elapsed()];
    while times.len() < REPETITIONS_MAX && begun.elapsed() < REPETITION_TIME {
        let again = Instant::now();
        division = decide();
        times.push(again.elapsed());
    }
    times.sort_unstable();
    (division, times[times.len() / 2])
}

fn report<'a>(
    input: &'a Input,
    policy: &'a str,
    division: &'a Division,
    throughput: Vec<f64>,
    time: Duration,
) -> Report<'a> {
    let allocation = division.bytes.iter().enumerate().map(|(index, &cache_bytes)| {
        let rates = division.rates.row(TenantId::from_index(index));
        Allocation { cache_bytes, db_rcu: rates[0], db_wcu: rates[1], net_bw: rates[2] }
    });
    let trades = division.trades.iter().map(|trade| {
        let mut units = [0.0; NAMES.len()];
        trade.compensation.iter().for_each(|(resource, rate)| units[resource.index()] = *rate);
        TradeReport {
            donor: &input.names[trade.donor.index()],
            receiver: &input.names[trade.receiver.index()],
            cache_bytes: trade.bytes,
            db_rcu: units[0],
            db_wcu: units[1],
            net_bw: units[2],
        }
    });
    Report {
        policy,
        allocation: allocation.collect(),
        throughput,
        normalized: &division.normalized,
        gain: division.gain,
        bound: division.bound.filter(|bound| bound.is_finite()),
        trades: trades.collect(),
        decision_us: time.as_secs_f64() * 1e6,
    }
}
