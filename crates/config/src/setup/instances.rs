//! External cache servers whose memory a node divides and resizes.

use std::path::PathBuf;

/// Kind of cache server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstanceKind {
    /// memcached, resized by `cache_memlimit` in whole MiB, at least eight.
    Memcached,
    /// Redis or Valkey, resized by `CONFIG SET maxmemory`.
    Redis,
}

impl InstanceKind {
    /// The name of the kind, as in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memcached => "memcached",
            Self::Redis => "redis",
        }
    }

    /// Smallest memory limit that this kind of server accepts, bytes.
    #[must_use]
    pub const fn bytes_min(self) -> u64 {
        match self {
            Self::Memcached => 8 << 20,
            Self::Redis => 2 << 20,
        }
    }
}

/// Configuration of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceSetup {
    /// Kind of the cache server.
    pub kind: InstanceKind,
    /// Host and port of the instance.
    pub address: String,
    /// User to authenticate as. Without one, Redis uses its default user.
    pub user: Option<String>,
    /// File with the password, if the instance requires one. Other users must not be able to read
    /// it; it is read on every connect.
    pub password_file: Option<PathBuf>,
}

/// The external instances that a node divides memory among, in place of a cache of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstancesSetup {
    /// Sum of the instances' sizes, bytes.
    pub total_bytes: u64,
    /// The instances, in the order of their partitions' ids.
    pub each: Vec<InstanceSetup>,
}
