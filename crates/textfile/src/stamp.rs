//! Detection of a changed file by its metadata.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A file that changed less than this time ago may change again with equal metadata: some file
/// systems store times in steps of up to two seconds.
const TIME_STEP: Duration = Duration::from_secs(2);

/// Properties of a file by which a change is detected. Links are followed, so that a link to
/// another file is a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    number: u64,
    bytes: u64,
    /// Times at which the file's contents, and its contents or metadata, last changed, in seconds
    /// and nanoseconds.
    times: [(i64, i64); 2],
}

impl Stamp {
    /// The stamp of the file; none if it does not exist.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|metadata| Self::from(&metadata))
    }

    /// True if every change of the file after `now` will change its stamp, since its last change is
    /// old enough.
    pub(crate) fn is_settled(&self, now: SystemTime) -> bool {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(TIME_STEP);
        self.times.iter().all(|(seconds, _)| u64::try_from(*seconds).is_ok_and(|at| at < now.as_secs()))
    }
}

impl From<&Metadata> for Stamp {
    fn from(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            number: metadata.ino(),
            bytes: metadata.len(),
            times: [(metadata.mtime(), metadata.mtime_nsec()), (metadata.ctime(), metadata.ctime_nsec())],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_stamp_is_settled_once_the_last_change_is_over_two_seconds_old() {
        let at = |seconds: i64| Stamp { device: 1, number: 1, bytes: 1, times: [(5, 0), (seconds, 0)] };
        let now = UNIX_EPOCH + Duration::from_secs(100);
        assert!(at(97).is_settled(now));
        assert!(!at(98).is_settled(now) && !at(100).is_settled(now) && !at(200).is_settled(now));
        assert!(!at(-1).is_settled(now), "a time before 1970 is none");
    }
}
