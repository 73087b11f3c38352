//! A vector of reused entries (slab), whose ids become invalid when their value is removed.

/// The id of a value stored in a [`Slab`]. It becomes invalid when the value is removed, even if
/// the entry is reused: it contains a generation, which repeats after 2^32 uses of one entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id {
    index: u32,
    generation: u32,
}

impl Id {
    /// Returns the id as a number.
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// Returns the id of a number, which may be invalid.
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// A vector of reused entries. It never shrinks: it has as many entries as were ever in use at
/// once.
#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Entry<T>>,
    /// Ids of unused entries, to be given out next. They are kept apart from the entries so that an
    /// insertion depends on no memory that it only writes.
    vacant: Vec<Id>,
}

#[derive(Clone, Debug)]
struct Entry<T> {
    /// The generation of the value that the entry stores, or stored last.
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Slab<T> {
    /// Creates an empty slab.
    pub(crate) const fn new() -> Self {
        Self { entries: Vec::new(), vacant: Vec::new() }
    }

    /// Returns the number of stored values.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.vacant.len()
    }

    /// Stores a value. The caller's own bounds keep the number of values below 2^32.
    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> Id {
        if let Some(id) = self.vacant.pop() {
            self.entries[id.index as usize] = Entry { generation: id.generation, value: Some(value) };
            return id;
        }
        let index =
            u32::try_from(self.entries.len()).expect("fewer than 2^32 values are held, by `waiters_max`");
        self.entries.push(Entry { generation: 0, value: Some(value) });
        Id { index, generation: 0 }
    }

    /// Returns the stored value of `id`; none if `id` is invalid.
    pub(crate) fn get(&self, id: Id) -> Option<&T> {
        let entry = self.entries.get(id.index as usize)?;
        if entry.generation == id.generation { entry.value.as_ref() } else { None }
    }

    /// Returns the stored value of `id` for changes; none if `id` is invalid.
    pub(crate) fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        let entry = self.entries.get_mut(id.index as usize)?;
        if entry.generation == id.generation { entry.value.as_mut() } else { None }
    }

    /// Returns the stored values with their ids. Linear in the most values ever stored at once.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Id, &T)> {
        self.entries.iter().enumerate().filter_map(|(index, entry)| {
            let id = Id { index: index as u32, generation: entry.generation };
            Some((id, entry.value.as_ref()?))
        })
    }

    /// Removes the value of `id`, which becomes invalid; none if it was invalid.
    pub(crate) fn remove(&mut self, id: Id) -> Option<T> {
        let value = self.occupied(id)?.take();
        self.vacate(id);
        value
    }

    /// Drops the value of `id` where it is, without moving it; `id` becomes invalid.
    pub(crate) fn discard(&mut self, id: Id) {
        if let Some(value) = self.occupied(id) {
            *value = None;
            self.vacate(id);
        }
    }

    /// Returns the storage of the value of `id`; none if `id` is invalid.
    fn occupied(&mut self, id: Id) -> Option<&mut Option<T>> {
        let entry = self.entries.get_mut(id.index as usize)?;
        (entry.generation == id.generation && entry.value.is_some()).then_some(&mut entry.value)
    }

    /// Gives the entry of `id` out again, under an id of its own.
    fn vacate(&mut self, Id { index, generation }: Id) {
        self.vacant.push(Id { index, generation: generation.wrapping_add(1) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slab_id_of_a_removed_value_is_invalid_after_reuse() {
        let mut slab = Slab::new();
        let first = slab.insert('a');
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.insert('b');
        assert_eq!(first.index, second.index);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.get_mut(first), None);
        assert_eq!((slab.get(second), slab.len()), (Some(&'b'), 1));
    }

    #[test]
    fn id_that_a_slab_never_gave_out_finds_no_value() {
        let mut slab = Slab::<()>::new();
        assert_eq!(slab.remove(Id { index: 7, generation: 0 }), None);
    }
}
