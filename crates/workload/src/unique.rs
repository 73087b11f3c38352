//! Maps of a document or of a line, in which no key stands twice.
//!
//! JSON leaves open what a repeated key means, and its readers take the last: of two lines of
//! limits for one backend, or two scenarios of one name, one would be overlooked without a word.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

/// A map, for fields that are [deserialized
/// with](https://serde.rs/field-attrs.html#deserialize_with) it.
pub(crate) fn map<'de, D, K, V>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
where
    D: Deserializer<'de>,
    K: Deserialize<'de> + Display + Ord,
    V: Deserialize<'de>,
{
    Unique::deserialize(deserializer).map(|Unique(entries)| entries)
}

/// A map or none, likewise; such a field needs `default` beside it.
pub(crate) fn map_or_none<'de, D, K, V>(deserializer: D) -> Result<Option<BTreeMap<K, V>>, D::Error>
where
    D: Deserializer<'de>,
    K: Deserialize<'de> + Display + Ord,
    V: Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.map(|Unique(entries)| entries))
}

/// What [`map`] does, for those who find out by themselves that it is a map.
pub(crate) fn entries<'de, A, K, V>(mut map: A) -> Result<BTreeMap<K, V>, A::Error>
where
    A: MapAccess<'de>,
    K: Deserialize<'de> + Display + Ord,
    V: Deserialize<'de>,
{
    let mut entries = BTreeMap::new();
    while let Some(key) = map.next_key::<K>()? {
        // Before its value is read, so that the place is the key's.
        if entries.contains_key(&key) {
            return Err(A::Error::custom(format_args!(
                "the key \"{key}\" is repeated, expected each key once"
            )));
        }
        entries.insert(key, map.next_value()?);
    }
    Ok(entries)
}

/// A map, for where it is an element of something.
pub(crate) struct Unique<K, V>(pub(crate) BTreeMap<K, V>);

impl<'de, K, V> Deserialize<'de> for Unique<K, V>
where
    K: Deserialize<'de> + Display + Ord,
    V: Deserialize<'de>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries(PhantomData)).map(Self)
    }
}

struct Entries<K, V>(PhantomData<(K, V)>);

impl<'de, K, V> Visitor<'de> for Entries<K, V>
where
    K: Deserialize<'de> + Display + Ord,
    V: Deserialize<'de>,
{
    type Value = BTreeMap<K, V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        entries(map)
    }
}
