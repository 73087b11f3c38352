//! Values that are a text, or a table where more is to be said.
//!
//! Read by hand: an untagged enum loses the key of an error within the table.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

/// A text or a table.
pub(super) enum TextOrTable<T> {
    Text(String),
    Table(T),
}

/// Reads a text or a table; `accepted` describes both in errors.
pub(super) fn text_or_table<'de, T, D>(
    deserializer: D,
    accepted: &'static str,
) -> Result<TextOrTable<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    deserializer.deserialize_any(Both { accepted, table: PhantomData })
}

struct Both<T> {
    accepted: &'static str,
    table: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Both<T> {
    type Value = TextOrTable<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.accepted)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(TextOrTable::Text(text.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(TextOrTable::Table)
    }
}
