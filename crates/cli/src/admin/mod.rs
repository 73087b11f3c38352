//! Requests to the admin API of a node: the flags that name it, and one client for all commands.

mod client;
mod url;

use std::path::PathBuf;
use std::time::Duration;

use crate::exit::Failure;
use crate::token::TokenFile;

pub(crate) use client::AdminClient;
use url::NodeUrl;

/// Longest time to connect, and between two parts of an answer, by default.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The node whose admin API is asked.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AdminNode {
    /// The node's admin API
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080", global = true)]
    url: String,
    #[command(flatten)]
    access: Access,
}

/// The access to a node with tokens or TLS.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Access {
    #[command(flatten)]
    token_file: TokenFile,
    /// Trust the authorities in this PEM file for https, not the system's
    #[arg(long, value_name = "FILE", global = true)]
    ca: Option<PathBuf>,
}

/// Returns the error about the answer of `path` that a node of another version has given.
pub(crate) fn other_form(path: &str) -> Failure {
    let own = env!("CARGO_PKG_VERSION");
    Failure::failed(format!(
        "reading {path}: the answer has another form than that of {own}; use the program of the node's version"
    ))
}

impl AdminNode {
    /// Returns a client of the node.
    ///
    /// # Errors
    /// If the URL or a file is invalid.
    pub(crate) fn client(&self) -> Result<AdminClient, Failure> {
        self.client_within(TIMEOUT)
    }

    /// Returns a client that waits at most `timeout` for a connection, and between two parts of an
    /// answer.
    ///
    /// # Errors
    /// As [`client`](Self::client).
    pub(crate) fn client_within(&self, timeout: Duration) -> Result<AdminClient, Failure> {
        AdminClient::open(NodeUrl::parse("--url", &self.url)?, &self.access, timeout)
    }

    /// Returns the URL as it was given.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl Access {
    /// Returns a client of the node at `url`, the value of `flag`.
    ///
    /// # Errors
    /// If the URL or a file is invalid.
    pub(crate) fn client(&self, flag: &'static str, url: &str) -> Result<AdminClient, Failure> {
        AdminClient::open(NodeUrl::parse(flag, url)?, self, TIMEOUT)
    }
}
