//! `sherwood config-schema`.

use crate::exit::Failure;
use crate::out;

/// Prints the JSON Schema of configuration files, for editors
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  sherwood config-schema > sherwood.schema.json

With `#:schema sherwood.schema.json` in its first line, editors complete and check a configuration.")]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> Result<(), Failure> {
    let schema = serde_json::to_string_pretty(&sherwood_config::schema()).expect("a schema is JSON");
    out::print(&format!("{schema}\n"))
}
