//! `sherwood mrc`: the miss ratio curve of a trace.

mod plot;

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use hashbrown::HashSet;
use indicatif::{HumanCount, ProgressBar};
use serde::Serialize;
use sherwood_cache::{Curve, Ghost, GhostOptions, charge};
use sherwood_model::SeededState;
use sherwood_workload::trace::objects::{self, Access, AccessKind};
use sherwood_workload::trace::{TraceError, built_in, built_in_names};

pub(crate) use plot::bytes;

use crate::exit::Failure;
use crate::out;

/// Draws the miss ratio curve of a trace: how many gets an LRU of each size misses
#[derive(Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "Examples:
  sherwood mrc orm-busy                                        exact, of a trace that is built in
  sherwood mrc orm-busy --sample 0.01 --plot curve.svg         of one object in a hundred, drawn
  sherwood mrc cluster52.csv --format twitter --json
  zstd -dc trace.oracleGeneral.zst | sherwood mrc - --format oracleGeneral

Gets count, whether they hit or not; stores only say what an object weighs and that it is the
most recent. A get of an absent object fills it in. An exact curve takes 55 to 110 bytes of memory
for each object, a sampled one its share of that.

Exit status: 0 done, 1 failed, 2 bad usage."
)]
pub(crate) struct Args {
    /// The trace: a file (packed with xz or not), - for standard input, or orm-busy or orm-night,
    /// which are built in
    #[arg(value_name = "FILE|NAME")]
    trace: PathBuf,
    /// Format of the trace [default: by its name]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Share of the objects to look at; 1 is exact
    #[arg(long, value_name = "RATIO", default_value_t = 1.0, value_parser = parse_ratio)]
    sample: f64,
    /// What an object weighs
    #[arg(long, value_enum, default_value_t = Weigh::Charge)]
    weigh: Weigh,
    /// Bytes of a value, for cache2k traces: they record no sizes [default: 100]
    #[arg(long, value_name = "BYTES")]
    value_size: Option<u32>,
    /// Seed of the hash that chooses the sample
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the curve as one JSON document
    #[arg(long)]
    json: bool,
    /// Draw the curve into this file, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// Packed object accesses (.trace, .trace.xz)
    Cache2k,
    /// libCacheSim's binary records (.oracleGeneral, .oracleGeneral.bin)
    #[value(name = "oracleGeneral", alias = "oracle-general", alias = "oraclegeneral")]
    OracleGeneral,
    /// Operations of Twitter's clusters as CSV (.csv)
    #[value(alias = "csv")]
    Twitter,
    /// Requests as JSON lines (.json, .jsonl)
    Robinhood,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Weigh {
    #[value(help = "What a node charges: key, value and metadata")]
    Charge,
    /// Key and value alone
    Size,
    /// Each the same: sizes count objects
    One,
}

/// A miss ratio curve and how it was drawn; the fields of the JSON document.
#[derive(Debug, Serialize)]
struct Report {
    bytes: Vec<u64>,
    miss_ratio: Vec<f64>,
    /// Number of gets.
    accesses: u64,
    /// Number of distinct objects read or written; an estimate when sampled.
    unique: u64,
    /// Number of stores and deletes, which do not count as accesses.
    writes: u64,
    sample: f64,
    weigh: &'static str,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if args.plot.as_deref() == Some(Path::new("-")) {
        return Err(Failure::usage(
            "--plot is -, and a picture needs a file: give its name, such as curve.svg",
        ));
    }
    // A missing file is reported before a missing format.
    let input = open(&args.trace)?;
    let format = format_of(&args.trace, args.format)?;
    let value_bytes = value_bytes(args.value_size, format)?;
    let failed = |error: TraceError| Failure::failed(format!("{}: {error}", args.trace.display()));
    let options = objects::Options { format, hash: SeededState::new(args.seed), value_bytes };
    let accesses = objects::read(input, options).map_err(failed)?;
    let report = study(accesses, args).map_err(failed)?;
    if let Some(error) = emptiness(&report) {
        return Err(Failure::failed(format!("{}: {error}", args.trace.display())));
    }
    if let Some(path) = &args.plot {
        let drawn = plot::svg(&report, &args.trace.display().to_string());
        out::write_file(path, &drawn)?;
    }
    let text = if args.json {
        serde_json::to_string(&report).expect("a report has string keys only") + "\n"
    } else {
        text(&report)
    };
    out::print(&text)
}

/// Returns the reason when the trace yields no curve.
fn emptiness(report: &Report) -> Option<&'static str> {
    if report.accesses == 0 {
        return Some("the trace holds no get, so there is no miss ratio: give one with gets");
    }
    (report.unique == 0).then_some("no object of the trace is in the sample: raise --sample")
}

/// Accesses between two updates of the progress line.
const PROGRESS_ACCESSES: u64 = 1 << 18;

fn study(
    accesses: impl Iterator<Item = Result<Access, TraceError>>,
    args: &Args,
) -> Result<Report, TraceError> {
    let mut ghost = Ghost::new(GhostOptions { rate: args.sample, ..GhostOptions::exact() });
    // The ghost forgets objects that are deleted and never sees those that are not stored.
    let mut sampled = HashSet::with_hasher(SeededState::new(args.seed));
    // Shown only on a terminal.
    let progress = ProgressBar::new_spinner();
    let (mut gets, mut writes) = (0, 0);
    for access in accesses {
        let access = access?;
        gets += u64::from(access.kind == AccessKind::Get);
        writes += u64::from(access.kind != AccessKind::Get);
        if ghost.samples(access.object) {
            sampled.insert(access.object);
        }
        note(&mut ghost, &access, args.weigh, gets);
        if (gets + writes).is_multiple_of(PROGRESS_ACCESSES) {
            progress.set_message(format!("{} accesses", HumanCount(gets + writes)));
            progress.tick();
        }
    }
    progress.finish_and_clear();
    let Curve { bytes, miss_ratio, rate, .. } = ghost.curve(gets);
    let unique = (sampled.len() as f64 / rate) as u64;
    let weigh = match args.weigh {
        Weigh::Charge => "charge",
        Weigh::Size => "size",
        Weigh::One => "one",
    };
    Ok(Report { bytes, miss_ratio, accesses: gets, unique, writes, sample: rate, weigh })
}

fn note(ghost: &mut Ghost, access: &Access, weigh: Weigh, gets: u64) {
    let Access { object, key_bytes, value_bytes, kind } = *access;
    match kind {
        AccessKind::Get => ghost.get(object, || gets),
        AccessKind::Remove => return ghost.remove(object),
        AccessKind::Store => {}
    }
    if let Some(value_bytes) = value_bytes {
        let bytes = match weigh {
            Weigh::Charge => charge(key_bytes as usize, value_bytes as usize),
            Weigh::Size => u64::from(key_bytes) + u64::from(value_bytes),
            Weigh::One => 1,
        };
        ghost.store(object, bytes, || gets);
    }
}

/// Bytes of a value when neither the trace nor the user gives its size.
const VALUE_BYTES: u32 = 100;

/// Most rows of the table; each has twice the size of the row before.
const ROWS: u32 = 12;

fn text(report: &Report) -> String {
    let last = *report.bytes.last().expect("the first size is 0");
    let unit = if report.weigh == "one" { "objects" } else { "" };
    let size = |bytes: u64| if unit.is_empty() { plot::bytes(bytes) } else { HumanCount(bytes).to_string() };
    let exact = if report.sample < 1.0 {
        format!("sampled at {:.3}%", report.sample * 100.0)
    } else {
        "exact".to_owned()
    };
    let (gets, objects) = (HumanCount(report.accesses), HumanCount(report.unique));
    let mut text = format!("{gets} gets of {objects} objects, {exact}\n\n");
    if last == 0 {
        text += "Every get misses, whatever the size: none found an object there that was looked at.\n";
        if report.sample < 1.0 {
            text += "A sample looks at few objects; a higher --sample looks at more.\n";
        }
        return text;
    }
    text += &format!("{:>12}  miss ratio\n", if unit.is_empty() { "size" } else { unit });
    let sizes = (0..ROWS).rev().map(|halvings| last >> halvings);
    for bytes in sizes.filter(|&bytes| bytes > 0) {
        text += &format!("{:>12}  {:>10.4}\n", size(bytes), at(report, bytes));
    }
    text
}

/// Returns the miss ratio at any size, interpolated between the sizes of the curve.
fn at(report: &Report, bytes: u64) -> f64 {
    let after = report.bytes.partition_point(|&size| size < bytes).min(report.bytes.len() - 1);
    let before = after.saturating_sub(1);
    let (from, to) = (report.bytes[before], report.bytes[after]);
    let way = (bytes - from) as f64 / (to - from).max(1) as f64;
    report.miss_ratio[before] + (report.miss_ratio[after] - report.miss_ratio[before]) * way
}

fn open(trace: &Path) -> Result<Box<dyn BufRead>, Failure> {
    if let Some(bytes) = trace.to_str().and_then(built_in) {
        return Ok(Box::new(Cursor::new(bytes)));
    }
    if trace == Path::new("-") {
        return Ok(Box::new(std::io::stdin().lock()));
    }
    match File::open(trace) {
        Ok(file) => Ok(Box::new(BufReader::with_capacity(1 << 16, file))),
        Err(error) => Err(Failure::failed(format!(
            "opening the trace {}: {error}; built in are: {}",
            trace.display(),
            built_in_names().collect::<Vec<_>>().join(", ")
        ))),
    }
}

fn format_of(trace: &Path, given: Option<Format>) -> Result<objects::Format, Failure> {
    let built_in = trace.to_str().is_some_and(|name| built_in(name).is_some());
    match (built_in, given) {
        (true, None | Some(Format::Cache2k)) => Ok(objects::Format::Cache2k),
        (true, Some(_)) => Err(Failure::usage(format!(
            "the built-in trace {} is cache2k: leave --format out",
            trace.display()
        ))),
        (false, Some(format)) => Ok(match format {
            Format::Cache2k => objects::Format::Cache2k,
            Format::OracleGeneral => objects::Format::OracleGeneral,
            Format::Twitter => objects::Format::Twitter,
            Format::Robinhood => objects::Format::RobinHood,
        }),
        (false, None) => by_name(trace).ok_or_else(|| {
            Failure::usage(format!(
                "which format is the trace {}? add --format cache2k, oracleGeneral, twitter or robinhood",
                trace.display()
            ))
        }),
    }
}

/// Returns the bytes of a value for a trace whose `format` records no sizes.
fn value_bytes(given: Option<u32>, format: objects::Format) -> Result<u32, Failure> {
    match given {
        Some(_) if format != objects::Format::Cache2k => Err(Failure::usage(
            "--value-size is for cache2k traces; others record the sizes of their values: leave it out"
                .to_owned(),
        )),
        given => Ok(given.unwrap_or(VALUE_BYTES)),
    }
}

/// Guesses the format from the file's name.
fn by_name(trace: &Path) -> Option<objects::Format> {
    let name = trace.file_name()?.to_str()?.to_ascii_lowercase();
    let name = name.strip_suffix(".xz").unwrap_or(&name);
    if name.contains(".oraclegeneral") {
        return Some(objects::Format::OracleGeneral);
    }
    match name.rsplit_once('.')?.1 {
        "trace" => Some(objects::Format::Cache2k),
        "csv" => Some(objects::Format::Twitter),
        "json" | "jsonl" => Some(objects::Format::RobinHood),
        _ => None,
    }
}

fn parse_ratio(text: &str) -> Result<f64, String> {
    let ratio: f64 = text.parse().map_err(|_| "give a number above 0 and up to 1, such as 0.01")?;
    if ratio > 0.0 && ratio <= 1.0 {
        Ok(ratio)
    } else {
        Err("give a number above 0 and up to 1, such as 0.01".to_owned())
    }
}
