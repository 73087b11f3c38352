//! Texts of JSON bodies that are not copied.

use std::borrow::Cow;
use std::ops::Deref;

use schemars::JsonSchema;
use serde::Deserialize;

/// A text borrowed from the body unless it has escapes. (Serde borrows a `Cow` that is a field, but
/// not one within a vector or an option.)
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline, description = "A text.")]
pub struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_without_escapes_is_borrowed_also_within_options_and_vectors() {
        let texts: Vec<Option<Text<'_>>> = serde_json::from_str(r#"["plain", null, "a\nb"]"#).unwrap();
        let is_borrowed = |text: &Option<Text<'_>>| matches!(text, Some(Text(Cow::Borrowed(_))));
        assert_eq!(texts.iter().map(is_borrowed).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!(texts[2].as_deref(), Some("a\nb"));
    }
}
