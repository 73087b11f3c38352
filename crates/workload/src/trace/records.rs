//! Records of a trace in any of the formats.

use std::io::BufRead;

use super::objects::Format;
use super::packed::{Unpacked, unpacked};
use super::{TraceError, cache2k, oracle_general, robinhood, twitter};

/// The reader of each format, used by [`objects`](super::objects) and
/// [`requests`](super::requests).
#[derive(Debug)]
pub(super) enum Records<R> {
    Cache2k(cache2k::Accesses<R>),
    OracleGeneral(oracle_general::Accesses<Unpacked<R>>),
    Twitter(twitter::Operations<Unpacked<R>>),
    RobinHood(robinhood::Requests<Unpacked<R>>),
}

impl<R: BufRead> Records<R> {
    /// Starts reading `input`, which is unpacked first if it is an xz file.
    ///
    /// # Errors
    /// See [`unpacked`].
    pub(super) fn read(format: Format, input: R) -> Result<Self, TraceError> {
        Ok(match format {
            Format::Cache2k => Self::Cache2k(cache2k::read(input)?),
            Format::OracleGeneral => Self::OracleGeneral(oracle_general::read(unpacked(input)?)),
            Format::Twitter => Self::Twitter(twitter::read(unpacked(input)?)),
            Format::RobinHood => Self::RobinHood(robinhood::read(unpacked(input)?)),
        })
    }
}
