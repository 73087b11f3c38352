//! Things with a number, whose numbers are used again.

/// A growing table of things; the number of one that was taken out goes to the next that comes in.
#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, thing: T) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.places[number as usize] = Some(thing);
                number
            }
            None => {
                self.places.push(Some(thing));
                (self.places.len() - 1) as u32
            }
        }
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.places.get(number as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.places.get_mut(number as usize)?.as_mut()
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let thing = self.places.get_mut(number as usize)?.take();
        if thing.is_some() {
            self.free.push(number);
        }
        thing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again_once_they_are_free() {
        let mut slab = Slab::new();
        assert_eq!((slab.insert('a'), slab.insert('b')), (0, 1));
        assert_eq!((slab.remove(0), slab.remove(0)), (Some('a'), None));
        assert_eq!((slab.insert('c'), slab.get_mut(0).copied(), slab.get_mut(7)), (0, Some('c'), None));
    }
}
