//! Flags of the command line as text; the configuration file's step gives them meaning.

use std::path::PathBuf;

/// Flags of `sherwood serve`, each absent unless given; they override the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// `--config FILE`.
    pub config: Option<PathBuf>,
    /// `--memory SIZE`.
    pub memory: Option<String>,
    /// `--memcached ADDR:PORT`.
    pub memcached: Option<String>,
    /// `--unix-socket PATH`.
    pub unix_socket: Option<String>,
    /// `--redis ADDR:PORT`.
    pub redis: Option<String>,
    /// `--admin ADDR:PORT|off`.
    pub admin: Option<String>,
    /// `--threads N`.
    pub threads: Option<u64>,
    /// `--pin`.
    pub pin: bool,
    /// `--io auto|epoll|io_uring`.
    pub io: Option<String>,
    /// `--max-connections N`.
    pub max_connections: Option<u64>,
    /// `--max-item-size SIZE`.
    pub max_item_size: Option<String>,
    /// `--eviction NAME`.
    pub eviction: Option<String>,
    /// `--policy NAME`.
    pub policy: Option<String>,
    /// `--node NAME`.
    pub node: Option<String>,
}
