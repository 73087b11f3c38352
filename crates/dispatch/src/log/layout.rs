//! Layouts of a replicated store.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The number of partitions of a replicated store, and of the equal duplicates of each.
///
/// ```
/// use sherwood_dispatch::Layout;
///
/// let layout: Layout = "4x2".parse()?;
/// assert_eq!((layout.partitions, layout.duplicates, layout.to_string()), (4, 2, "4x2".into()));
/// # Ok::<(), sherwood_dispatch::LayoutTextError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Layout {
    /// Number of partitions, at least 1.
    pub partitions: u16,
    /// Number of duplicates of each, at least 1.
    pub duplicates: u8,
}

/// Writes the layout as in "4x2": four partitions with two duplicates each.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.partitions, self.duplicates)
    }
}

/// The error of a text that is not a [`Layout`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("\"{}\" is not a layout, which is two numbers from 1 on, as in \"4x2\"", .0.escape_default())]
pub struct LayoutTextError(String);

/// Reads what [`Display`](fmt::Display) writes.
impl FromStr for Layout {
    type Err = LayoutTextError;

    fn from_str(text: &str) -> Result<Self, LayoutTextError> {
        let layout = text.split_once('x').and_then(|(partitions, duplicates)| {
            Some(Self { partitions: partitions.parse().ok()?, duplicates: duplicates.parse().ok()? })
        });
        let layout = layout.filter(|layout| layout.partitions > 0 && layout.duplicates > 0);
        layout.ok_or_else(|| LayoutTextError(text.chars().take(64).collect()))
    }
}
