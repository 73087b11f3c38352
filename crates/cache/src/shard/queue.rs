//! A queue of items, linked through their records.

use super::pages::{Handle, NO_HANDLE, Pages};
use super::record::{edit, neighbours};

/// A queue: `oldest` is the next victim. Under strict LRU a use makes an item the newest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    newest: Handle,
    oldest: Handle,
    /// Sum of the charges of the queue's items.
    pub(super) bytes: u64,
}

impl Queue {
    pub(super) const fn new() -> Self {
        Self { newest: NO_HANDLE, oldest: NO_HANDLE, bytes: 0 }
    }

    #[inline]
    pub(super) fn oldest(&self) -> Option<Handle> {
        (self.oldest != NO_HANDLE).then_some(self.oldest)
    }

    /// Appends a record that is in no queue as the newest; `bytes` is its charge.
    pub(super) fn push(&mut self, pages: &mut Pages, at: Handle, bytes: u64) {
        edit::set_links(pages.bytes_mut(at), NO_HANDLE, self.newest);
        match self.newest {
            NO_HANDLE => self.oldest = at,
            newest => edit::set_newer(pages.bytes_mut(newest), at),
        }
        self.newest = at;
        self.bytes += bytes;
    }

    /// Makes a record of this queue the newest; it is between `newer` and `older`.
    #[inline]
    pub(super) fn renew(&mut self, pages: &mut Pages, at: Handle, (newer, older): (Handle, Handle)) {
        if newer == NO_HANDLE {
            return;
        }
        self.link(pages, newer, older);
        self.push(pages, at, 0);
    }

    /// Removes a record of this queue.
    pub(super) fn remove(&mut self, pages: &mut Pages, at: Handle, bytes: u64) {
        let (newer, older) = neighbours(&pages.slot(at));
        self.link(pages, newer, older);
        self.bytes -= bytes;
    }

    /// Links the neighbours of a record that has moved to `at` (with its own links) to its new
    /// position.
    pub(super) fn relocate(&mut self, pages: &mut Pages, at: Handle) {
        let (newer, older) = neighbours(&pages.slot(at));
        match newer {
            NO_HANDLE => self.newest = at,
            newer => edit::set_older(pages.bytes_mut(newer), at),
        }
        match older {
            NO_HANDLE => self.oldest = at,
            older => edit::set_newer(pages.bytes_mut(older), at),
        }
    }

    /// Makes `newer` and `older` neighbours; `NO_HANDLE` is the queue's end.
    fn link(&mut self, pages: &mut Pages, newer: Handle, older: Handle) {
        match newer {
            NO_HANDLE => self.newest = older,
            newer => edit::set_older(pages.bytes_mut(newer), older),
        }
        match older {
            NO_HANDLE => self.oldest = newer,
            older => edit::set_newer(pages.bytes_mut(older), newer),
        }
    }
}
