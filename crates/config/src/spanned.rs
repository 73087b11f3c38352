//! A value of the file with its place.

use std::borrow::Cow;
use std::ops::Range;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;

/// A value with the range of bytes of the file that it was read from; `toml`'s type of this name,
/// with the schema of its value.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent, bound = "T: Deserialize<'de>")]
pub(crate) struct Spanned<T>(toml::Spanned<T>);

impl<T> Spanned<T> {
    /// Creates a value that was read from `span`.
    pub(crate) fn new(span: Range<usize>, value: T) -> Self {
        Self(toml::Spanned::new(span, value))
    }

    /// Returns the bytes of the file that the value was read from.
    pub(crate) fn span(&self) -> Range<usize> {
        self.0.span()
    }

    /// Returns the value.
    pub(crate) fn get_ref(&self) -> &T {
        self.0.get_ref()
    }
}

impl<T: JsonSchema> JsonSchema for Spanned<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}
