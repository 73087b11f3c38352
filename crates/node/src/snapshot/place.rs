//! What may be where a snapshot is to be: nothing, or what a node has left there. A path that is
//! mistyped must not cost anybody a file: what is read is removed, and what is written takes the
//! place of what was there.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::SnapshotSetup;
use super::file::{FAMILY, HEAD_BYTES, fill};

/// What is in the way.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Foreign {
    pub(super) path: PathBuf,
    /// Such as `a directory`.
    pub(super) what: &'static str,
}

/// Looks at the file and at the two beside it; none where nothing is in the way.
///
/// # Errors
/// When the system cannot look.
pub(super) fn foreign(setup: &SnapshotSetup) -> io::Result<Option<Foreign>> {
    for path in [setup.path.clone(), setup.beside(".part"), setup.beside(".read")] {
        if let Some(what) = foreign_at(&path)? {
            return Ok(Some(Foreign { path, what }));
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
            file => (!begins_as_ours(file?)?).then_some("a file that is no snapshot of Sherwood"),
        },
    })
}

/// Whether a node of any version wrote it, damaged or not. One whose beginning had not come to the
/// disk when the power failed is empty or begins with zeros.
fn begins_as_ours(mut file: File) -> io::Result<bool> {
    let mut begin = vec![0; UNWRITTEN_BYTES];
    let length = fill(&mut file, &mut begin)?;
    Ok(begin[HEAD_BYTES..].starts_with(FAMILY) || begin[..length].iter().all(|byte| *byte == 0))
}

/// Zeros by which a file is taken for one that did not come to the disk. Images of disks have
/// something in it: the last to begin is that of btrfs, whose first block is at 64 KiB.
const UNWRITTEN_BYTES: usize = 68 << 10;
