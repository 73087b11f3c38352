//! Numbers of requests by class.

use std::collections::BTreeMap;
use std::sync::Mutex;

/// Upper bound of classes counted by name; requests of further ones count as `other`, so that
/// clients cannot grow the metrics.
const CLASSES_MAX: usize = 32;

/// Numbers of requests by the class that they name.
#[derive(Debug, Default)]
pub(crate) struct Classes(Mutex<BTreeMap<String, u64>>);

impl Classes {
    /// Counts a request of `class`.
    pub(crate) fn count(&self, class: &str) {
        let mut classes = self.0.lock().expect("no panics while held");
        if let Some(count) = classes.get_mut(class) {
            *count += 1;
        } else {
            let name = if classes.len() < CLASSES_MAX { class } else { "other" };
            *classes.entry(name.to_owned()).or_default() += 1;
        }
    }

    /// Every class and its count, in the order of names; at most 33.
    #[must_use]
    pub(crate) fn counts(&self) -> Vec<(String, u64)> {
        self.0
            .lock()
            .expect("no panics while held")
            .iter()
            .map(|(name, count)| (name.clone(), *count))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_classes_beyond_the_maximum_count_as_other() {
        let classes = Classes::default();
        (0..1000).for_each(|i| classes.count(&format!("c{i:04}")));
        let counts = classes.counts();
        assert_eq!(counts.len(), CLASSES_MAX + 1);
        assert_eq!(counts.iter().map(|(_, count)| count).sum::<u64>(), 1000);
    }
}
