//! State of one duplicate: what it has applied, and whether it may be read.

use std::fmt;
use std::str::FromStr;

use sherwood_model::Instant;
use thiserror::Error;

use super::layout::Layout;

/// Upper bound of the numbers of entries and processes that are read from markers and disks, beyond
/// which nothing ever comes.
pub(super) const NUMBER_MAX: u64 = 1 << 62;

/// The record, kept at a duplicate beside its data, of the changes that it has. Later records are
/// greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Marker {
    /// The number of the process whose log wrote the record; later ones are greater.
    pub epoch: u64,
    /// All entries up to this one are applied.
    pub applied: u64,
    /// Number of the last entry that was sent when the record was written, or after it, if there
    /// were any.
    pub sent: u64,
    /// Number of entries, of those that the process has given up so far, which a duplicate may have
    /// made although others have not.
    pub contested: u64,
    /// Number of partitions into which the configuration divides the store's keys. Under another
    /// number its keys would be looked for at other duplicates.
    pub partitions: u16,
    /// The layout of the store whose duplicates may have changes that this one lacks; none if it is
    /// the configured one.
    pub layout: Option<Layout>,
}

/// Writes the marker as five decimal numbers, and the layout if there is one, with blanks between
/// them.
impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { epoch, applied, sent, contested, partitions, layout } = self;
        write!(f, "{epoch} {sent} {applied} {contested} {partitions}")?;
        layout.map_or(Ok(()), |layout| write!(f, " {layout}"))
    }
}

/// Reads what [`Display`](fmt::Display) writes.
impl FromStr for Marker {
    type Err = MarkerError;

    fn from_str(text: &str) -> Result<Self, MarkerError> {
        let wrong = || MarkerError(text.chars().take(64).collect());
        let words: Vec<&str> = text.splitn(7, ' ').collect();
        let (numbers, layout) = words.split_at(words.len().min(5));
        let numbers: Result<Vec<u64>, _> = numbers.iter().map(|word| word.parse()).collect();
        let layout = match layout {
            [] => None,
            [layout] => Some(layout.parse().map_err(|_| wrong())?),
            _ => return Err(wrong()),
        };
        match numbers.map_err(|_| wrong())?[..] {
            [epoch, sent, applied, contested, partitions]
                if applied <= sent && epoch.max(sent) <= NUMBER_MAX =>
            {
                let partitions = u16::try_from(partitions).map_err(|_| wrong())?;
                Ok(Self { epoch, sent, applied, contested, partitions, layout })
            }
            _ => Err(wrong()),
        }
    }
}

/// The error of a text that is not a [`Marker`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("\"{}\" is not a marker, which is five numbers and perhaps a layout: its key is reserved, remove it", .0.escape_default())]
pub struct MarkerError(String);

/// The progress of a duplicate that was not lost sight of, or how it is found again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateState {
    /// Read and written.
    Current,
    /// Written, and read as soon as it has applied this entry.
    Joining(u64),
    /// Written, too far behind to be read.
    Behind,
    /// Filled from another duplicate; waits for one while there is none.
    Copying {
        /// The duplicate that is copied from; none while it waits.
        from: Option<usize>,
        /// All entries up to this one were applied there when the copy began; none if that one was
        /// not read all the time since.
        base: Option<u64>,
    },
    /// Without a connection. Commands that were sent over the last one may still be applied.
    Lost,
    /// Inspected; waits until the log of a new process is open.
    Found,
    /// Asked for its [`Marker`]; with true, for the second time, when nothing that was sent before
    /// can be applied any more.
    Inspected(bool),
    /// Connected, and left alone until nothing that was sent before can be applied any more.
    Landing,
    /// Taken out of the log; what it has is to be removed.
    Leaving,
    /// Not a duplicate any more.
    Gone,
}

impl DuplicateState {
    /// Returns the name of the state, for operators.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Joining(_) => "joining",
            Self::Behind => "behind",
            Self::Copying { .. } => "copying",
            Self::Lost => "lost",
            Self::Found => "found",
            Self::Inspected(_) => "inspected",
            Self::Landing => "landing",
            Self::Leaving => "leaving",
            Self::Gone => "gone",
        }
    }

    /// Returns true if the duplicate belongs to the log.
    pub(super) fn is_member(self) -> bool {
        !matches!(self, Self::Leaving | Self::Gone)
    }

    /// Returns true if entries are sent to the duplicate.
    pub(super) fn is_written(self) -> bool {
        matches!(self, Self::Current | Self::Joining(_) | Self::Behind)
    }

    /// Returns true if an entry counts as settled only after the duplicate has applied it.
    pub(super) fn holds_back(self) -> bool {
        matches!(self, Self::Current | Self::Joining(_))
    }
}

/// The state of one duplicate.
#[derive(Clone, Debug)]
pub(super) struct Duplicate {
    pub(super) state: DuplicateState,
    /// All entries up to this one are applied; 0 if nothing is known.
    pub(super) applied: u64,
    /// The last entry of the batch in flight; none without one.
    pub(super) in_flight: Option<u64>,
    /// The marker of the batch in flight.
    pub(super) marking: Marker,
    /// The marker that the duplicate has; none if it has none, or it is not known.
    pub(super) marker: Option<Marker>,
    /// True until it next answers a batch: it has to record a marker even if that is the same.
    pub(super) must_mark: bool,
    /// The marker, if any, with which it was taken as complete when the log was opened; none once a
    /// later one is known to be recorded.
    pub(super) opened_with: Option<Option<Marker>>,
    /// Time until which it is left alone; [`Instant::NEVER`] if it is not.
    pub(super) due: Instant,
    /// The last entry that was ever sent, and the one before the latest batch was.
    pub(super) sent: (u64, u64),
    /// The entries of its latest batch that it has refused whenever they were sent.
    pub(super) refused: Vec<u64>,
    /// True from the time that it has to be copied until it is.
    pub(super) differs: bool,
    /// True from the time that it joined the open log until it is read.
    pub(super) is_new: bool,
    /// True while it is asked for its marker before the log is open, and counts only if it has one.
    pub(super) is_candidate: bool,
    /// The entry up to which the others have to record all before it leaves; none if it stays.
    pub(super) leaves_after: Option<u64>,
}

impl Duplicate {
    /// Creates a duplicate of which nothing is known.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            state: DuplicateState::Lost,
            applied: 0,
            in_flight: None,
            marking: Marker::default(),
            marker: None,
            must_mark: false,
            opened_with: None,
            due: now,
            sent: (0, 0),
            refused: Vec::new(),
            differs: false,
            is_new: false,
            is_candidate: false,
            leaves_after: None,
        }
    }

    /// Returns true if it belongs to the log and was read, or was there from the start.
    pub(super) fn was_complete(&self) -> bool {
        self.state.is_member() && !self.is_new && !self.is_candidate
    }

    /// Returns true if an entry that it has applied counts as applied.
    pub(super) fn is_voter(&self) -> bool {
        self.was_complete() && self.leaves_after.is_none()
    }

    /// Returns the number up to which its marker says that all entries are applied.
    pub(super) fn recorded(&self) -> u64 {
        self.marker.map_or(0, |marker| marker.applied)
    }

    /// Returns true if the duplicate may have applied an entry, for all that is known.
    pub(super) fn may_have(&self, number: u64) -> bool {
        let may_still_apply = self.in_flight.is_some_and(|last| number <= last);
        may_still_apply || (number <= self.applied.max(self.sent.0) && !self.refused.contains(&number))
    }

    /// Notes that a batch up to an entry is sent.
    pub(super) fn note_sent(&mut self, last: u64, marking: Marker) {
        (self.in_flight, self.marking) = (Some(last), marking);
        self.sent = (self.sent.0.max(last), self.sent.0);
    }

    /// Notes the entries of a batch that it has refused. It does not have those that it has refused
    /// each time.
    pub(super) fn note_refused(&mut self, refused: &[u64]) {
        let before = std::mem::take(&mut self.refused);
        let is_absent = |number: &&u64| **number > self.sent.1 || before.contains(*number);
        self.refused = refused.iter().filter(is_absent).copied().collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marker_is_read_as_it_was_written() {
        for layout in [None, Some(Layout { partitions: 4, duplicates: 2 })] {
            let marker =
                Marker { epoch: NUMBER_MAX, sent: 7, applied: 0, contested: 1, partitions: 4, layout };
            assert_eq!(marker.to_string().parse(), Ok(marker));
        }
        for text in [
            "",
            "1 2",
            "1 3 2 4",
            "1 3 2 4 5 6",
            "1 3 2 4 5 0x4",
            "1 3 2 4 5 4x1 5",
            "1 3 x 4 5",
            "1  3 2 4",
            "18446744073709551616 1 1 1 1",
            "18446744073709551615 1 1 0 1",
            "1 18446744073709551615 1 0 1",
            "1 6 7 0 1",
            "1 6 6 0 65536",
        ] {
            let error = text.parse::<Marker>().expect_err(text).to_string();
            assert!(error.starts_with(&format!("\"{text}\" is not a marker")), "{error}");
        }
    }
}
