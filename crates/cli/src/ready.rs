//! `sherwood ready`.

use crate::admin::AdminNode;
use crate::exit::Failure;

/// Checks that a node serves, for health checks of containers
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sherwood ready
  sherwood ready --url http://127.0.0.1:9090
  sherwood ready --url https://cache-1:8443 --ca ca.pem

Exit status: 0 if the node answers /readyz and is not stopping, 1 otherwise. It needs no token.")]
pub(crate) struct Args {
    #[command(flatten)]
    node: AdminNode,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    args.node.client()?.is_ready()
}
