//! Checks the snapshot's path, which must be free or have a file that a node wrote: a snapshot is
//! removed after reading, and writing replaces it, so a mistyped path could destroy another file.
//!
//! A file that does not begin like a file of a node may be a snapshot whose beginning is damaged.
//! It does not prevent the start, but is neither read nor replaced.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::SnapshotSetup;
use super::file::{FAMILY, HEAD_BYTES, checksum, fill};

/// A foreign file at the snapshot's path.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Foreign {
    pub(super) path: PathBuf,
    /// Kind of the file, such as `a directory`.
    pub(super) what: &'static str,
    /// True for a readable regular file, which may be a damaged snapshot.
    pub(super) may_be_damaged: bool,
}

/// Looks for a foreign file at the snapshot's path and the two beside it.
///
/// # Errors
/// Fails when the system cannot read the directory or a file.
pub(super) fn foreign(setup: &SnapshotSetup) -> io::Result<Option<Foreign>> {
    for path in [setup.path.clone(), setup.beside(".part"), setup.beside(".read")] {
        if let Some(what) = foreign_at(&path)? {
            return Ok(Some(Foreign { path, what, may_be_damaged: what == UNKNOWN }));
        }
    }
    Ok(None)
}

fn foreign_at(path: &Path) -> io::Result<Option<&'static str>> {
    let kind = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found?.file_type(),
    };
    Ok(match kind {
        kind if kind.is_symlink() => Some("a link"),
        kind if kind.is_dir() => Some("a directory"),
        kind if !kind.is_file() => Some("no plain file"),
        _ => match File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Some("a file that this user may not read")
            }
            file => (!begins_as_ours(file?)?).then_some(UNKNOWN),
        },
    })
}

/// Returns true if a node of any version wrote the file, damaged or not. After a power failure, the
/// start of such a file may be missing or zero.
fn begins_as_ours(mut file: File) -> io::Result<bool> {
    let mut begin = vec![0; UNWRITTEN_BYTES];
    let length = fill(&mut file, &mut begin)?;
    let has_our_sum = begin[12..HEAD_BYTES] == checksum(&begin[..12]).to_le_bytes();
    Ok(has_our_sum
        || begin[HEAD_BYTES..].starts_with(FAMILY)
        || begin[..length].iter().all(|byte| *byte == 0))
}

/// The description of a file that no node wrote, or whose beginning is damaged.
const UNKNOWN: &str = "a file that is no snapshot of Sherwood, or a damaged one";

/// Number of leading zero bytes by which a file counts as one whose data did not reach the disk.
/// Disk images have data earlier: the latest start is that of btrfs, whose first block is at 64
/// KiB.
const UNWRITTEN_BYTES: usize = 68 << 10;
