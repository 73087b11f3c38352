//! Deserialisation of maps that refuses repeated keys.
//!
//! JSON does not define the meaning of a repeated key, and parsers take the last value: of two
//! limits of one backend, or of two scenarios with one name, one would be dropped silently.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

/// Deserialises a map and refuses repeated keys; for fields with
/// [`deserialize_with`](https://serde.rs/field-attrs.html#deserialize_with).
pub(crate) fn map<'de, D, K, V>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
where
    D: Deserializer<'de>,
    K: Deserialize<'de> + Display + Ord,
    V: Deserialize<'de>,
{
    Unique::deserialize(deserializer).map(|Unique(entries)| entries)
}

/// Deserialises an optional map and refuses repeated keys; such a field needs `default` as well.
pub(crate) fn map_or_none<'de, D, K, V>(deserializer: D) -> Result<Option<BTreeMap<K, V>>, D::Error>
where
    D: Deserializer<'de>,
    K: Deserialize<'de> + Display + Ord,
    V: Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.map(|Unique(entries)| entries))
}

/// Reads the entries of a map and refuses repeated keys, for visitors that accept other types too.
pub(crate) fn entries<'de, A, K, V>(mut map: A) -> Result<BTreeMap<K, V>, A::Error>
where
    A: MapAccess<'de>,
    K: Deserialize<'de> + Display + Ord,
    V: Deserialize<'de>,
{
    let mut entries = BTreeMap::new();
    while let Some(key) = map.next_key::<K>()? {
        // Checked before the value is read, so that the error's position is that of the key.
        if entries.contains_key(&key) {
            return Err(A::Error::custom(format_args!(
                "the key \"{key}\" is repeated, expected each key once"
            )));
        }
        entries.insert(key, map.next_value()?);
    }
    Ok(entries)
}

/// A map with distinct keys, as an element of another type.
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
