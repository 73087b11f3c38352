//! `sherwood tenants`: the division among the tenants of a node.

mod table;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::{Map, Value, json};
use sherwood_model::misread;

use crate::admin::{AdminNode, other_form};
use crate::exit::Failure;
use crate::out;

/// Shows how a node divides cache and units among its tenants
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sherwood tenants                                       a row for each tenant, the latest decision
  sherwood tenants --url http://cache-1:8080 --json      the same as JSON
  sherwood tenants what-if --weight gold=2               a division with another weight

`sherwood tenants COMMAND --help` shows the flags of a command.")]
pub(crate) struct Args {
    #[command(flatten)]
    node: AdminNode,
    /// Print the node's answer as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Asks for a division with other weights or more tenants by the present curves
    ///
    /// Nothing changes on the node.
    WhatIf(WhatIf),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sherwood tenants what-if --weight gold=2 --weight silver=0.5
  sherwood tenants what-if --add examples/tenants/newcomer.json --json")]
struct WhatIf {
    /// Add the tenant that this JSON file describes
    ///
    /// It has the fields name, weight (1 if left out), demand_if_miss (units of each resource, by
    /// name, that an average request takes when it misses), net_alpha (the part of the network that
    /// a hit saves), and mrc: {ticks_bytes, miss_ratio}, as in `sherwood policy allocate`.
    #[arg(long, value_name = "FILE")]
    add: Vec<PathBuf>,
    /// Give a tenant another weight
    #[arg(long, value_name = "TENANT=WEIGHT", value_parser = weight)]
    weight: Vec<(String, f64)>,
}

/// The path that answers what another weight would bring.
const WHAT_IF: &str = "/v1/tenants/what-if";

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let Args { node, json, command } = args;
    let client = node.client()?;
    let (path, answer): (_, Value) = match command {
        None => ("/v1/tenants", client.get("/v1/tenants")?),
        Some(Command::WhatIf(asked)) => (WHAT_IF, client.post(WHAT_IF, &asked.body()?)?),
    };
    if *json {
        return out::print(&format!("{answer:#}\n"));
    }
    let text = match command {
        None => table::standing(answer),
        Some(Command::WhatIf(_)) => table::division(answer),
    };
    out::print(&text.map_err(|_| other_form(path))?)
}

impl WhatIf {
    fn body(&self) -> Result<Value, Failure> {
        if self.add.is_empty() && self.weight.is_empty() {
            return Err(Failure::usage("nothing to ask; give --add FILE or --weight TENANT=WEIGHT"));
        }
        let weights: Map<String, Value> =
            self.weight.iter().map(|(name, weight)| (name.clone(), json!(weight))).collect();
        let add: Vec<Value> = self.add.iter().map(|path| described(path)).collect::<Result<_, _>>()?;
        Ok(json!({ "weights": weights, "add": add }))
    }
}

fn described(path: &Path) -> Result<Value, Failure> {
    let of = |error: &dyn std::fmt::Display| {
        Failure::usage(format!("--add {}: {error}; name a JSON file that describes a tenant", path.display()))
    };
    let text = sherwood_textfile::input(path).map_err(|error| of(&format_args!("it {error}")))?;
    serde_json::from_str(&text).map_err(|error| of(&misread::json_file(&error)))
}

fn weight(text: &str) -> Result<(String, f64), String> {
    let parsed = text.rsplit_once('=').and_then(|(name, weight)| {
        let weight: f64 = weight.parse().ok()?;
        (!name.is_empty() && weight.is_finite() && weight > 0.0).then(|| (name.to_owned(), weight))
    });
    parsed.ok_or_else(|| {
        "write a tenant's name, an equals sign and a number above 0, such as gold=2".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weight_is_given_after_a_tenants_name() {
        assert_eq!(weight("a=b=2"), Ok(("a=b".to_owned(), 2.0)));
        for text in ["gold", "=2", "gold=", "gold=-1", "gold=NaN", "gold=inf"] {
            assert!(weight(text).unwrap_err().ends_with("such as gold=2"), "{text}");
        }
    }
}
