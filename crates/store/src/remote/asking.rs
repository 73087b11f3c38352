//! Reads a list of keys with as many statements as it takes to give each key its own answer.
//!
//! The answer to a list contains the keys as the server spells them, and a list fails as a whole.
//! So parts of a list are queried again if its answer does not show which key a row belongs to, or
//! if the server refused one of its keys: in halves, and one by one once four or fewer keys are
//! left. A row that is found for a single key belongs to that key, however it is spelled, and a
//! failure is that key's.
//!
//! [`Asking`] decides which keys are queried next; its driver runs the statements. A list of `n`
//! keys takes at most `2n` statements, including the first.
//!
//! Pure.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;

use super::spelling::{Compared, Signature};

/// Length up to which a list is queried again key by key. Dividing such a list into halves would
/// take more statements.
const SINGLES: usize = 4;

/// The rows of one answer, by their keys as the server spells them.
#[derive(Clone, Debug)]
pub(crate) struct Rows<V> {
    compared: Compared,
    /// The key of the first row.
    first: Option<Bytes>,
    by_key: HashMap<Bytes, V>,
}

impl<V> Rows<V> {
    /// Creates an answer without rows, with capacity for `rows` of them.
    pub(crate) fn new(compared: Compared, rows: usize) -> Self {
        Self { compared, first: None, by_key: HashMap::with_capacity(rows) }
    }

    /// Adds a row. Of rows with equal keys the last one counts.
    pub(crate) fn insert(&mut self, key: Bytes, value: V) {
        self.first.get_or_insert_with(|| key.clone());
        self.by_key.insert(key, value);
    }

    /// Returns the row whose key equals `key` byte for byte.
    pub(crate) fn get(&self, key: &Bytes) -> Option<&V> {
        self.by_key.get(key)
    }

    /// Appends the rows of `keys` to `values`, with `absent` for keys without a row. Returns true
    /// if no key has to be queried again: each key has a row with exactly its spelling, or there
    /// are no rows.
    pub(crate) fn append(&self, keys: &[Bytes], absent: &V, values: &mut Vec<V>) -> bool
    where
        V: Clone,
    {
        let mut missing = false;
        values.extend(keys.iter().map(|key| {
            let row = self.by_key.get(key);
            missing |= row.is_none();
            row.unwrap_or(absent).clone()
        }));
        !missing || self.by_key.is_empty()
    }

    /// Moves the rows that belong to `keys`, which were queried together, out of the answer.
    fn assign(&mut self, keys: Vec<Bytes>) -> Assigned<V> {
        if let [key] = &keys[..] {
            let row = self.by_key.remove(key).or_else(|| self.by_key.remove(self.first.as_ref()?));
            return Assigned {
                settled: row.map(|row| (key.clone(), row)).into_iter().collect(),
                unclear: Vec::new(),
            };
        }
        let mut unclear = Vec::new();
        let mut pairs = Vec::with_capacity(keys.len());
        let similar = Similar::new(self, &keys);
        for key in keys {
            if self.by_key.contains_key(&key) {
                pairs.push((key.clone(), key));
                continue;
            }
            match similar.find(&key) {
                Similarity::None => {}
                Similarity::Row(row) => pairs.push((key, row)),
                Similarity::Unclear => unclear.push(key),
            }
        }
        let settled =
            pairs.into_iter().filter_map(|(key, row)| Some((key, self.by_key.remove(&row)?))).collect();
        Assigned { settled, unclear }
    }
}

/// The keys of a list, as far as the answer to the list determines their rows. Keys in neither
/// field have no row.
struct Assigned<V> {
    /// Keys with the rows that belong to them.
    settled: Vec<(Bytes, V)>,
    /// Keys that may have a row with another spelling.
    unclear: Vec<Bytes>,
}

/// The keys and rows of a list, grouped by signature.
struct Similar {
    compared: Compared,
    /// The number of keys with each signature.
    keys: HashMap<Signature, usize>,
    rows: HashMap<Signature, Vec<Bytes>>,
    /// True if some row may belong to any key: it has no signature, or one that no key has.
    is_vague: bool,
}

/// The rows that are similar to a key.
enum Similarity {
    None,
    /// Exactly one row, which is similar to no other key.
    Row(Bytes),
    Unclear,
}

impl Similar {
    fn new<V>(answer: &Rows<V>, asked: &[Bytes]) -> Self {
        let compared = answer.compared;
        let (mut keys, mut rows) = (HashMap::new(), HashMap::<_, Vec<_>>::new());
        if !answer.by_key.is_empty() {
            for key in asked {
                *keys.entry(compared.signature(key)).or_default() += 1;
            }
        }
        for row in answer.by_key.keys() {
            rows.entry(compared.signature(row)).or_default().push(row.clone());
        }
        let is_similar = |signature| keys.contains_key(signature) || keys.contains_key(&None);
        let is_vague = rows.keys().any(|signature| signature.is_none() || !is_similar(signature));
        Self { compared, keys, rows, is_vague }
    }

    fn find(&self, key: &Bytes) -> Similarity {
        if self.rows.is_empty() {
            return Similarity::None;
        }
        let signature = self.compared.signature(key);
        if self.is_vague || signature.is_none() {
            return Similarity::Unclear;
        }
        let is_only = self.keys.get(&signature) == Some(&1) && !self.keys.contains_key(&None);
        match self.rows.get(&signature).map(Vec::as_slice) {
            None => Similarity::None,
            Some([row]) if is_only && self.compared.is_certain(key, row) => Similarity::Row(row.clone()),
            Some(_) => Similarity::Unclear,
        }
    }
}

/// A list of keys that is being read.
pub(crate) struct Asking<V> {
    /// The lists that still have to be queried.
    open: Vec<Vec<Bytes>>,
    answers: HashMap<Bytes, V>,
    /// True until the first answer.
    is_whole: bool,
}

impl<V> Asking<V> {
    /// Creates the state of a list whose first statement, with all its keys, is not answered yet.
    pub(crate) fn new() -> Self {
        Self { open: Vec::new(), answers: HashMap::new(), is_whole: true }
    }

    /// Records the answer to a list. Returns the rows that belong to none of its keys, or to a key
    /// that is queried again.
    pub(crate) fn answered(
        &mut self,
        list: Vec<Bytes>,
        mut rows: Rows<V>,
    ) -> impl Iterator<Item = V> + use<V> {
        let asked = list.len();
        let Assigned { settled, unclear } = rows.assign(list);
        self.answers.extend(settled);
        // Most keys that are unclear have no row, which one statement without the others shows.
        if self.is_whole && unclear.len() < asked && !unclear.is_empty() {
            self.open.push(unclear);
        } else {
            self.divide(unclear);
        }
        self.is_whole = false;
        rows.by_key.into_values()
    }

    /// Records the failure of a list, which any of its keys may have caused.
    pub(crate) fn refused(&mut self, mut list: Vec<Bytes>, failure: V) {
        self.is_whole = false;
        match list.len() {
            1 => _ = list.pop().map(|key| self.answers.insert(key, failure)),
            _ => self.divide(list),
        }
    }

    /// Answers all keys of `list`, and those that still have to be queried, with `failure`.
    pub(crate) fn give_up(&mut self, list: Vec<Bytes>, failure: &V)
    where
        V: Clone,
    {
        let rest = list.into_iter().chain(self.open.drain(..).flatten());
        self.answers.extend(rest.map(|key| (key, failure.clone())));
    }

    /// Returns the list to query next; none if every key has its answer.
    pub(crate) fn next(&mut self) -> Option<Vec<Bytes>> {
        self.open.pop()
    }

    /// Returns the answers; they do not contain keys without a row.
    pub(crate) fn into_answers(self) -> HashMap<Bytes, V> {
        self.answers
    }

    fn divide(&mut self, mut list: Vec<Bytes>) {
        if list.len() <= SINGLES {
            self.open.extend(list.into_iter().map(|key| vec![key]));
        } else {
            let half = list.split_off(list.len() / 2);
            self.open.extend([half, list]);
        }
    }
}

/// Returns the distinct keys of a list, in their order.
pub(crate) fn distinct(keys: &[Bytes]) -> Vec<Bytes> {
    let mut seen = HashSet::with_capacity(keys.len());
    keys.iter().filter(|key| seen.insert(*key)).cloned().collect()
}

#[cfg(test)]
mod tests;
