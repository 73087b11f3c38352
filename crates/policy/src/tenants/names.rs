//! Construction of policies between tenants by name.

use sherwood_model::did_you_mean;
use thiserror::Error;

use super::TenantPolicy;
use super::baseline::Baseline;
use super::drf::Drf;
use super::hare::Hare;
use super::memshare::Memshare;
use super::non_partitioned::NonPartitioned;
use super::published::Published;

/// Names of the policies, in the order in which they are shown.
const AVAILABLE: [&str; 6] = ["hare", "hare-published", "drf", "memshare", "baseline", "non-partitioned"];

/// Parameters of the policies between tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantOptions {
    /// Bytes of cache that `hare-published` and `memshare` move at a time, at least 1; the authors
    /// of HARE use a 64th of a tenant's baseline. `hare` moves any number of bytes.
    pub chunk_bytes: u64,
    /// True if rates that do not raise the least throughput are divided, too; false if they are
    /// left in reserve.
    pub conserving: bool,
}

/// Parts of the smallest baseline of which [`TenantOptions::of_baselines`] moves one at a time.
const CHUNKS: u64 = 64;

impl TenantOptions {
    /// Returns options with chunks of a 64th of the smallest of these baselines of cache, as in the
    /// evaluation of HARE, but at least a byte.
    #[must_use]
    pub fn of_baselines(bytes: impl IntoIterator<Item = u64>, conserving: bool) -> Self {
        let least = bytes.into_iter().min().unwrap_or(0);
        Self { chunk_bytes: (least / CHUNKS).max(1), conserving }
    }
}

/// Reason why a policy cannot be constructed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TenantPolicyError {
    /// No policy has that name.
    #[error(
        "cannot use policy {name:?} between tenants: it is not known; choose one of {}{}",
        AVAILABLE.join(", "),
        did_you_mean(name, &AVAILABLE)
    )]
    Unknown {
        /// The name that no policy has.
        name: String,
    },
    /// Policies that move chunks would not end.
    #[error(
        "cannot divide the cache in chunks of 0 bytes: choose at least 1, such as a 64th of a tenant's baseline"
    )]
    NoChunk,
}

/// The names that [`by_name`] accepts.
#[must_use]
pub fn available() -> &'static [&'static str] {
    &AVAILABLE
}

/// The names of the policies that divide the cache: all but `non-partitioned`.
#[must_use]
pub fn dividing() -> &'static [&'static str] {
    &AVAILABLE[..AVAILABLE.len() - 1]
}

/// Constructs the policy called `name`.
///
/// # Errors
/// A name that is unknown; chunks without bytes.
pub fn by_name(name: &str, options: TenantOptions) -> Result<Box<dyn TenantPolicy>, TenantPolicyError> {
    let TenantOptions { chunk_bytes, conserving } = options;
    if chunk_bytes == 0 {
        return Err(TenantPolicyError::NoChunk);
    }
    Ok(match name {
        "hare" => Box::new(Hare { conserving }),
        "hare-published" => Box::new(Published { chunk_bytes, conserving }),
        "drf" => Box::new(Drf { conserving }),
        "memshare" => Box::new(Memshare { chunk_bytes, conserving }),
        "baseline" => Box::new(Baseline),
        "non-partitioned" => Box::new(NonPartitioned),
        _ => return Err(TenantPolicyError::Unknown { name: name.to_owned() }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: TenantOptions = TenantOptions { chunk_bytes: 1, conserving: true };

    #[test]
    fn every_available_policy_between_tenants_has_its_name() {
        for name in available() {
            let policy = by_name(name, OPTIONS).expect("it is available");
            assert_eq!(policy.name(), *name);
            assert_eq!(policy.shares_all(), !dividing().contains(name));
        }
    }

    #[test]
    fn policy_between_tenants_that_is_unknown_or_without_chunk_is_refused() {
        let Err(unknown) = by_name("hair", OPTIONS) else { panic!("there is no such policy") };
        assert!(
            unknown.to_string().ends_with(
                "choose one of hare, hare-published, drf, memshare, baseline, non-partitioned: did you mean \"hare\"?"
            )
        );
        let none = by_name("hare", TenantOptions { chunk_bytes: 0, ..OPTIONS });
        assert_eq!(none.err(), Some(TenantPolicyError::NoChunk));
    }
}
