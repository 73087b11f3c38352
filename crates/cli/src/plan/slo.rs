//! `sherwood plan slo`: partitions and duplicates for a latency objective.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;
use sherwood_policy::slo::{Composition, Costs, Objective, PricedPlan, ServiceTimes, cheapest, plans};

use super::points;
use crate::duration;
use crate::exit::Failure;
use crate::out;
use crate::words;

/// Plans of the table, at most; the JSON document has all.
const ROWS_MAX: usize = 12;
const RATE_MAX: f64 = 1e9;
const NODES_MAX: i64 = 100_000;
const ACCESSES_MAX: i64 = 10_000;

/// Chooses partitions and duplicates of a replicated store for a latency objective
#[derive(Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "Examples:
  sherwood plan slo --cdf store.csv --rate 5000 --bound 15ms --percentile 99.9 --nodes 144
  sherwood plan slo --cdf store.csv --rate 5000 --bound 15ms --percentile 99.9 --find-cheapest
  sherwood plan slo --hist counts.csv --rate 9000 --bound 150ms --percentile 99 --nodes 144 \\
    --accesses 20 --composition sequence --node-cost 1 --idle-cost 0.3 --json

A plan has partitions, each with a part of the keys, and duplicates of each partition. An access
asks some of the duplicates and takes the first answer; with a hedge, one more is asked when there
was none after that time. Duplicates are assumed to be slow independently of each other.

Exit status: 0 done, 1 failed, 2 bad usage."
)]
pub(crate) struct Args {
    /// Service times of one node, as lines `latency_ms,cumulative`: linear between points, an atom
    /// at the first, 1 at the last
    #[arg(long, value_name = "FILE", required_unless_present = "hist", conflicts_with = "hist")]
    cdf: Option<PathBuf>,
    /// Service times of one node, as lines `latency_ms,count`
    #[arg(long, value_name = "FILE")]
    hist: Option<PathBuf>,
    /// Accesses a second
    #[arg(long, value_name = "R", value_parser = parse_rate)]
    rate: f64,
    /// Time within which a request is to end
    #[arg(long, value_name = "TIME", value_parser = parse_bound)]
    bound: Duration,
    /// Percentage of requests that are to end within the bound
    #[arg(long, value_name = "P", value_parser = parse_percentile)]
    percentile: f64,
    /// Accesses of a request
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=ACCESSES_MAX))]
    accesses: u32,
    /// The order of a request's accesses
    #[arg(long, value_enum, default_value_t = Order::Parallel)]
    composition: Order,
    /// Nodes at hand: plans that use them best
    #[arg(long, value_name = "N", required_unless_present = "find_cheapest", conflicts_with = "find_cheapest",
          value_parser = clap::value_parser!(u32).range(1..=NODES_MAX))]
    nodes: Option<u32>,
    /// Find the fewest nodes that meet the objective
    #[arg(long)]
    find_cheapest: bool,
    /// Price of a node in use, for an hour
    #[arg(long, value_name = "C", default_value_t = 1.0, value_parser = parse_cost)]
    node_cost: f64,
    /// Price of a node at hand that is not used, for an hour
    #[arg(long, value_name = "C", default_value_t = 0.0, value_parser = parse_cost)]
    idle_cost: f64,
    /// Print all plans as one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Order {
    /// All at once
    Parallel,
    /// Each after the one before
    Sequence,
}

/// The fields of the JSON document.
#[derive(Serialize)]
struct Report {
    plans: Vec<PricedPlan>,
    best: Option<PricedPlan>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let times = match (&args.cdf, &args.hist) {
        (Some(path), _) => points::cumulative(path)?,
        (None, Some(path)) => points::counts(path)?,
        (None, None) => return Err(Failure::usage("give the service times by --cdf or --hist")),
    };
    let objective = Objective {
        rate_per_s: args.rate,
        accesses: args.accesses,
        composition: match args.composition {
            Order::Parallel => Composition::Parallel,
            Order::Sequence => Composition::Sequence,
        },
        bound_ms: args.bound.as_secs_f64() * 1e3,
    };
    let (level, costs) = (args.percentile / 100.0, Costs { node: args.node_cost, idle: args.idle_cost });
    let plans = match args.nodes {
        Some(nodes) => plans(&times, &objective, level, nodes, &costs),
        None => cheapest(&times, &objective, level, &costs),
    };
    let report = Report { best: plans.first().copied(), plans };
    if args.json {
        out::print(&(out::json(&report) + "\n"))
    } else {
        out::print(&text(args, &times, &report))
    }
}

/// Formats the best plans as a table, and what follows from it. A plan that differs from one before
/// by more duplicates alone is left out.
fn text(args: &Args, times: &ServiceTimes, report: &Report) -> String {
    let mut text = format!(
        "{:>10} {:>10} {:>6} {:>9} {:>6} {:>6} {:>10} {:>10} {:>9}\n",
        "partitions", "duplicates", "asked", "hedge", "nodes", "busy", "in time", "extra load", "cost"
    );
    let mut shown: Vec<&PricedPlan> = Vec::new();
    for priced in &report.plans {
        let equals = |other: &&PricedPlan| other.figures == priced.figures && other.nodes == priced.nodes;
        if shown.len() < ROWS_MAX && !shown.iter().any(equals) {
            text.push_str(&row(priced));
            shown.push(priced);
        }
    }
    let more = report.plans.len() - shown.len();
    if more > 0 {
        let _ = writeln!(text, "and {more} more plans, which --json lists");
    }
    text + "\n" + &conclusion(args, times, report)
}

fn row(priced: &PricedPlan) -> String {
    let PricedPlan { plan, nodes, figures, cost, meets } = priced;
    let hedge = plan.hedge_ms.map_or("–".to_owned(), |ms| format!("{ms:.1} ms"));
    format!(
        "{:>10} {:>10} {:>6} {hedge:>9} {nodes:>6} {:>5.0}% {:>9.4}% {:>9.1}% {cost:>9.2}{}\n",
        plan.partitions,
        plan.duplicates,
        plan.asked,
        figures.utilisation * 100.0,
        figures.service_level * 100.0,
        figures.extra_load_ratio * 100.0,
        if *meets { "" } else { "  too few in time" }
    )
}

fn conclusion(args: &Args, times: &ServiceTimes, report: &Report) -> String {
    let bound = words::duration(args.bound);
    let level = |plan: &PricedPlan| format!("{:.4}%", plan.figures.service_level * 100.0);
    match report.best {
        Some(best) if best.meets => format!(
            "best: {} partitions of {}, {} nodes: {} of the requests end within {bound}\n",
            best.plan.partitions,
            duplicates(best.plan.duplicates),
            best.nodes,
            level(&best)
        ),
        Some(best) if best.figures.service_level > 0.0 => format!(
            "no plan has {}% of the requests within {bound}: the best has {}; add nodes\n",
            args.percentile,
            level(&best)
        ),
        Some(_) => format!(
            "no plan can follow {} accesses a second of {:.3} ms each: they keep {:.1} nodes busy; add nodes\n",
            args.rate,
            times.mean_ms(),
            args.rate / 1e3 * times.mean_ms()
        ),
        None => format!(
            "no number of nodes has {}% of the requests within {bound}: too many services take too long\n",
            args.percentile
        ),
    }
}

fn duplicates(count: u32) -> String {
    if count == 1 { "1 duplicate".to_owned() } else { format!("{count} duplicates") }
}

fn parse_rate(text: &str) -> Result<f64, String> {
    number(text)
        .filter(|rate| *rate > 0.0 && *rate <= RATE_MAX)
        .ok_or_else(|| format!("{text} is not above 0 and at most {RATE_MAX}"))
}

fn parse_percentile(text: &str) -> Result<f64, String> {
    let of = number(text).filter(|percentile| *percentile > 0.0 && *percentile < 100.0);
    of.ok_or_else(|| format!("{text} is not above 0 and below 100"))
}

fn parse_cost(text: &str) -> Result<f64, String> {
    number(text).filter(|cost| *cost >= 0.0).ok_or_else(|| format!("{text} is not 0 or more"))
}

fn parse_bound(text: &str) -> Result<Duration, String> {
    duration::between(Duration::from_micros(1), Duration::from_secs(3_600), text)
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}
