//! A short list without a heap allocation.

/// Largest number of attempts of one fetch that may be live at the same time, and of replicas that
/// are picked together.
pub(crate) const ATTEMPTS_MAX: usize = 8;

/// At most [`ATTEMPTS_MAX`] different values, in the order in which they were pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Few<T> {
    values: [T; ATTEMPTS_MAX],
    len: u8,
}

impl<T: Copy + PartialEq> Few<T> {
    /// Returns an empty list. `unused` is the content of places that hold nothing.
    pub(crate) const fn new(unused: T) -> Self {
        Self { values: [unused; ATTEMPTS_MAX], len: 0 }
    }

    pub(crate) fn as_slice(&self) -> &[T] {
        &self.values[..usize::from(self.len)]
    }

    /// Appends `value`. Does nothing if the list has it already or is full.
    pub(crate) fn push(&mut self, value: T) {
        if usize::from(self.len) < ATTEMPTS_MAX && !self.as_slice().contains(&value) {
            self.values[usize::from(self.len)] = value;
            self.len += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_list_keeps_values_once_in_order_and_up_to_its_bound() {
        let mut few = Few::new(0);
        (1..=9).flat_map(|value| [value, value]).for_each(|value| few.push(value));
        assert_eq!(few.as_slice(), [1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
