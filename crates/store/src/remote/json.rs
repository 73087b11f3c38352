//! Reads JSON answers of servers member by member, so that a malformed member does not affect the
//! others; pure.

use std::borrow::Cow;

/// Returns `body` without a byte order mark, which some services put before JSON (RFC 8259, 8.1).
pub(super) fn without_mark(body: &[u8]) -> &[u8] {
    body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body)
}

/// A member of an object: its name and its value as received, each perhaps malformed.
pub(super) struct Member<'a> {
    name: &'a [u8],
    value: &'a [u8],
}

impl<'a> Member<'a> {
    /// Returns the name; none if it is not valid text, such as half of a surrogate pair.
    pub(super) fn name(&self) -> Option<Cow<'a, str>> {
        let inner = &self.name[1..self.name.len() - 1];
        match inner.contains(&b'\\') {
            true => serde_json::from_slice(self.name).ok().map(Cow::Owned),
            false => std::str::from_utf8(inner).ok().map(Cow::Borrowed),
        }
    }

    /// The JSON text of the value.
    pub(super) fn value(&self) -> &'a [u8] {
        self.value
    }
}

/// Splits a JSON object into its members, in linear time and without allocating memory. Only the
/// object's own structure is checked: a member ends at the next comma outside of strings and
/// brackets. If the text is not an object, or more text follows it, the last item is an error with
/// the problem and its position.
pub(super) fn members(object: &[u8]) -> impl Iterator<Item = Result<Member<'_>, String>> {
    List::new(object, b'{', b'}', Text::member)
}

/// Splits a JSON array into the JSON texts of its elements, like [`members`].
pub(super) fn elements(array: &[u8]) -> impl Iterator<Item = Result<&[u8], String>> {
    List::new(array, b'[', b']', |text| text.value(b']'))
}

/// Finds the values of the members of a JSON object that are called `names`; none for members that
/// are `null` or absent. If several members have the same name, the last one counts.
///
/// # Errors
/// The error that is the last item of [`members`].
pub(super) fn find<'a, const N: usize>(
    object: &'a [u8],
    names: [&str; N],
) -> Result<[Option<&'a [u8]>; N], String> {
    let mut found = [None; N];
    for member in members(object) {
        let member = member?;
        if let Some(name) = member.name()
            && let Some(at) = names.iter().position(|&asked| asked == name)
        {
            found[at] = (member.value != b"null").then_some(member.value);
        }
    }
    Ok(found)
}

const UNENDED: &str = "the end is missing";

/// An object or array that is read item by item.
struct List<'a, R> {
    text: Text<'a>,
    open: u8,
    close: u8,
    /// Reads an item, up to the comma or `close` that follows it.
    read: R,
    has_begun: bool,
    has_ended: bool,
}

impl<'a, T, R: Fn(&mut Text<'a>) -> Result<T, &'static str>> List<'a, R> {
    fn new(bytes: &'a [u8], open: u8, close: u8, read: R) -> Self {
        Self { text: Text { bytes, at: 0 }, open, close, read, has_begun: false, has_ended: false }
    }

    fn item(&mut self) -> Result<Option<T>, &'static str> {
        let is_last = if self.has_begun {
            self.text.at += 1;
            self.text.bytes[self.text.at - 1] == self.close
        } else {
            self.has_begun = true;
            self.text.expect(self.open)?;
            let is_empty = self.text.peek() == Some(self.close);
            self.text.at += usize::from(is_empty);
            is_empty
        };
        if is_last {
            return self.text.end().map(|()| None);
        }
        self.text.peek();
        (self.read)(&mut self.text).map(Some)
    }
}

impl<'a, T, R: Fn(&mut Text<'a>) -> Result<T, &'static str>> Iterator for List<'a, R> {
    type Item = Result<T, String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let item = self.item().map_err(|problem| self.text.problem(problem)).transpose();
        self.has_ended = !matches!(item, Some(Ok(_)));
        item
    }
}

/// A JSON text and the position up to which it is read.
struct Text<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Text<'a> {
    fn member(&mut self) -> Result<Member<'a>, &'static str> {
        if self.peek() != Some(b'"') {
            return Err("a name in quotes is expected");
        }
        let start = self.at;
        self.string()?;
        let name = &self.bytes[start..self.at];
        self.expect(b':')?;
        self.peek();
        Ok(Member { name, value: self.value(b'}')? })
    }

    /// Reads a value, up to the comma or `close` that follows it.
    fn value(&mut self, close: u8) -> Result<&'a [u8], &'static str> {
        let (start, mut depth) = (self.at, 0_usize);
        while let Some(&byte) = self.bytes.get(self.at) {
            match byte {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'[' | b'{' => depth += 1,
                _ if depth == 0 && (byte == b',' || byte == close) => {
                    return Ok(self.bytes[start..self.at].trim_ascii_end());
                }
                b']' | b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.at += 1;
        }
        Err(UNENDED)
    }

    /// Reads a string, starting at its opening quote.
    fn string(&mut self) -> Result<(), &'static str> {
        self.at += 1;
        while let Some(&byte) = self.bytes.get(self.at) {
            self.at += match byte {
                b'\\' => 2,
                _ => 1,
            };
            if byte == b'"' {
                return Ok(());
            }
        }
        self.at = self.bytes.len();
        Err(UNENDED)
    }

    fn expect(&mut self, byte: u8) -> Result<(), &'static str> {
        if self.peek() != Some(byte) {
            return Err(match byte {
                b'{' => "a { is expected",
                b'[' => "a [ is expected",
                _ => "a : is expected",
            });
        }
        self.at += 1;
        Ok(())
    }

    fn end(&mut self) -> Result<(), &'static str> {
        self.peek().map_or(Ok(()), |_| Err("nothing more is expected"))
    }

    /// Describes a problem at the current position.
    fn problem(&self, problem: &str) -> String {
        format!("{problem}, at byte {} of {}", self.at, self.bytes.len())
    }

    /// Skips white space and returns the next byte.
    fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.bytes.get(self.at) {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the members of `object` with their decoded names, or the problem.
    fn split(object: &str) -> Result<Vec<(Option<String>, String)>, String> {
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let one = |member: Member<'_>| (member.name().map(Cow::into_owned), text(member.value()));
        members(object.as_bytes()).map(|member| member.map(one)).collect()
    }

    fn named(name: &str, value: &str) -> (Option<String>, String) {
        (Some(name.to_owned()), value.to_owned())
    }

    #[test]
    fn object_is_split_only_at_its_top_level_commas() {
        let object = r#" { "a" : "x,\"}" , "b\u00fc":[1,{"c":2}],"":{ } , "n": NaN } "#;
        let expected =
            [named("a", r#""x,\"}""#), named("bü", r#"[1,{"c":2}]"#), named("", "{ }"), named("n", "NaN")];
        assert_eq!(split(object).unwrap(), expected);
        assert_eq!(split("{}").unwrap(), []);
        let array = |text| elements(text).collect::<Result<Vec<_>, _>>();
        assert_eq!(array(b" [ 1 , [2,3], \"]\" ] ").unwrap(), [&b"1"[..], b"[2,3]", b"\"]\""]);
        assert_eq!(array(b"[]").unwrap(), [&b""[..]; 0]);
        assert_eq!(array(b"[1,2").unwrap_err(), "the end is missing, at byte 4 of 4");
    }

    #[test]
    fn last_of_several_members_with_one_name_is_found_and_null_counts_as_absent() {
        let object = br#"{"a":1,"b":2,"\u0061":3,"c":4,"c":null}"#;
        let expected = [Some(&b"3"[..]), Some(b"2"), None, None];
        assert_eq!(find(object, ["a", "b", "c", "d"]).unwrap(), expected);
        assert!(find(b"[]", ["a"]).is_err());
    }

    #[test]
    fn malformed_member_does_not_affect_the_other_members() {
        for wrong in ["", "x", "-", "01", "[1}", "\u{0}", "nul", "1e999", r#""\ud800""#, r#""\x""#] {
            let object = format!(r#"{{"a":1,"wrong":{wrong},"b":"2"}}"#);
            assert_eq!(
                split(&object).unwrap(),
                [named("a", "1"), named("wrong", wrong), named("b", "\"2\"")]
            );
        }
        assert_eq!(split(r#"{"\ud800":1,"b":2}"#).unwrap(), [(None, "1".into()), named("b", "2")]);
    }

    #[test]
    fn incomplete_or_invalid_object_is_refused_with_the_position_of_the_problem() {
        for (wrong, problem) in [
            ("", "a { is expected, at byte 0 of 0"),
            ("[]", "a { is expected, at byte 0 of 2"),
            ("<html>", "a { is expected, at byte 0 of 6"),
            ("{\"a\":1", "the end is missing, at byte 6 of 6"),
            ("{\"a\":\"1}", "the end is missing, at byte 8 of 8"),
            ("{\"a\":\"1\\", "the end is missing, at byte 8 of 8"),
            ("{\"a\":[1,}", "the end is missing, at byte 9 of 9"),
            ("{\"a\" 1}", "a : is expected, at byte 5 of 7"),
            ("{\"a\":1,}", "a name in quotes is expected, at byte 7 of 8"),
            ("{\"a\":1}{", "nothing more is expected, at byte 7 of 8"),
        ] {
            assert_eq!(split(wrong).unwrap_err(), problem, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_object_is_split_into_the_same_members_as_serde_reads(
            object in prop::collection::btree_map(".{0,6}", ".{0,6}", 0..6)
        ) {
            let text = serde_json::to_string(&object).unwrap();
            let read = members(text.as_bytes()).map(|member| {
                let member = member.unwrap();
                (member.name().unwrap().into_owned(), serde_json::from_slice(member.value()).unwrap())
            });
            prop_assert_eq!(read.collect::<std::collections::BTreeMap<String, String>>(), object);
        }

        #[test]
        fn any_sequence_of_json_tokens_is_split_or_refused_without_a_panic(words in prop::collection::vec(
            prop::sample::select(vec!["{", "}", "[", "]", ":", ",", "\"", "\\", "a", "\"a\"", " ", "1"]), 0..40
        )) {
            let text = words.concat();
            let _ = members(text.as_bytes()).filter(Result::is_err).count();
            let _ = elements(text.as_bytes()).filter(Result::is_err).count();
        }
    }
}
