//! `sherwood sim compare`: policies in scenarios, with several seeds.
//!
//! A comparison of everything takes long. Each run is therefore kept when it is finished, and the
//! same command continues where it was stopped.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::Serialize;
use sherwood_sim::LimitLine;
use sherwood_sim::zoolander::Scenario;

use super::comparison::Comparison;
use super::flags::{BatchFlags, PAPER_POLICIES, Policies};
use super::inputs::distinct;
use super::onerf::report::Limits;
use super::onerf::subject::{Subject, subjects};
use super::onerf::{self, hits};
use super::report::{self, Section};
use super::{microfuge, spare, sweep, tenants, zoolander};
use crate::exit::Failure;
use crate::out;

/// Simulates policies in scenarios, with several seeds, and keeps what was finished
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sherwood sim compare --report report.html --plots plots
  sherwood sim compare --scenario onerf-spikes,onerf-random --policies robinhood,shared-lru
  sherwood sim compare --scenario ramp-7-quick --seeds 1,2,3,4,5 --json
  sherwood sim compare --scenario microfuge --seeds 1,2,3,4,5 --report deadlines.html
  sherwood sim compare --scenario hare-working-set,hare-skew --report tenants.html
  sherwood sim compare --scenario spare-mediawiki,spare-solr --set rate=5,10
  sherwood sim compare --scenario zoolander-diurnal --set correlation=0,0.3
  sherwood sim compare --scenario zoolander-model --set load=0.05,0.2,0.5 --report model.html

Runs are kept in the directory of --results as they finish. The same command goes on with those that
are missing; results of another build or of other settings are made anew. With several seeds,
intervals are given that hold the true mean with a confidence of 95%.

Exit status: 0 done, 1 failed, 2 bad usage, 130 interrupted.")]
#[command(mut_arg("json", |arg| arg.help("Print summary and results as one JSON document")))]
pub(crate) struct Args {
    /// Scenarios of the list, or of files: what happens to the backends, or what tenants ask for
    /// [default: all of OneRF but none]
    #[arg(long = "scenario", value_name = "NAME|FILE.json[#NAME],…", value_delimiter = ',')]
    scenarios: Vec<String>,
    #[command(flatten)]
    policies: Policies,
    #[command(flatten)]
    batch: BatchFlags,
    /// Write summary and plots into this file, as one page of HTML
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write each plot into this directory, as a file of SVG
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// Plot latencies of hits too, from what `sherwood demo --json` printed into this file
    #[arg(long, value_name = "FILE")]
    hits: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let Args { scenarios, policies, batch, .. } = args;
    if microfuge::is_asked_for(scenarios)? {
        args.refuse_plots("microfuge")?;
        let policies = policies.chosen_or(microfuge::policies());
        let comparison = Comparison::of(&[microfuge::Microfuge], &policies, batch, microfuge::values)?;
        let sections = microfuge::sections(&comparison);
        return args.show("Deadlines in front of a slow store", &comparison, None, &sections);
    }
    if spare::is_asked_for(scenarios)? {
        args.refuse_plots("sPARE")?;
        let policies = policies.chosen_or(spare::policies());
        let find = |name: &String| spare::Application::find(name);
        let applications = distinct(scenarios).iter().map(find).collect::<Result<Vec<_>, _>>()?;
        let comparison = Comparison::of(&applications, &policies, batch, spare::values)?;
        let sections = spare::sections(&comparison);
        return args.show("Replicated calls in two tiers", &comparison, None, &sections);
    }
    if let Some(scenario) = zoolander::asked_for(scenarios)? {
        args.refuse_plots("Zoolander")?;
        return args.compare_zoolander(scenario);
    }
    if tenants::is_asked_for(scenarios)? {
        args.refuse_plots("tenants")?;
        let policies = policies.chosen_or(tenants::policies());
        let names = distinct(scenarios);
        let subjects =
            names.iter().map(|name| tenants::Subject::find(name)).collect::<Result<Vec<_>, _>>()?;
        let comparison = Comparison::of(&subjects, &policies, batch, sweep::listed)?;
        let sections = tenants::sections(&comparison);
        return args.show("Tenants that share a cache and its backends", &comparison, None, &sections);
    }
    let policies = policies.chosen_or(PAPER_POLICIES);
    let subjects = subjects(&distinct(scenarios))?;
    let hits = args.hits.as_deref().map(hits::read).transpose()?.unwrap_or_default();
    let comparison = Comparison::of(&subjects, &policies, batch, sweep::single)?;
    let limits = limits(&subjects, batch, &comparison.settings)?;
    let sections = onerf::report::sections(&comparison, &limits, &hits);
    args.show("Allocation policies compared", &comparison, Some(batch.flags.scale()), &sections)
}

/// Returns the limits of each scenario's backends, which are the same for every policy.
fn limits(
    subjects: &[Subject],
    batch: &BatchFlags,
    settings: &[String],
) -> Result<BTreeMap<String, Limits>, Failure> {
    let limits = |subject: &Subject| {
        let setup = subject.setup(&batch.flags, settings, "equal", 1)?;
        Ok((setup.scenario.clone(), LimitLine::of(&setup).map_err(Failure::usage)?))
    };
    subjects.iter().map(limits).collect()
}

impl Args {
    fn compare_zoolander(&self, scenario: Scenario) -> Result<(), Failure> {
        let policies = self.policies.chosen_or(zoolander::policies(scenario));
        match scenario {
            Scenario::Diurnal => {
                let comparison =
                    Comparison::of(&[zoolander::Diurnal], &policies, &self.batch, sweep::listed)?;
                let sections = zoolander::sections(&comparison);
                self.show("A replicated store by day and at night", &comparison, None, &sections)
            }
            Scenario::Model => {
                let comparison = Comparison::of(&[zoolander::Model], &policies, &self.batch, sweep::listed)?;
                let sections = zoolander::model_sections(&comparison);
                self.show("Service levels measured and predicted", &comparison, None, &sections)
            }
        }
    }

    fn refuse_plots(&self, of: &str) -> Result<(), Failure> {
        if self.plots.is_none() && self.hits.is_none() {
            return Ok(());
        }
        Err(Failure::usage(format!("--plots and --hits: there are none of {of}; use --report")))
    }

    /// Writes the page and the plots, and prints the report.
    fn show<R: Serialize, O>(
        &self,
        title: &str,
        comparison: &Comparison<R, O>,
        scale: Option<&str>,
        sections: &[Section],
    ) -> Result<(), Failure> {
        if let Some(path) = &self.report {
            out::write_file(path, &report::page(title, sections))?;
        }
        if let Some(directory) = &self.plots {
            write_plots(sections, directory).map_err(|error| {
                Failure::failed(format!("writing plots into {}: {error}", directory.display()))
            })?;
        }
        out::print(&if self.batch.json {
            report::document(comparison, scale, sections)
        } else {
            report::text(sections)
        })
    }
}

/// Writes each picture of the report into a file in `directory`, which is created if necessary.
fn write_plots(sections: &[Section], directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut pictures = sections.iter().flat_map(|section| &section.pictures);
    pictures.try_for_each(|picture| fs::write(directory.join(format!("{}.svg", picture.name)), &picture.svg))
}
