//! URL templates, which map keys to URLs; pure.
//!
//! A key's bytes are percent-encoded, so that they cannot act as separators or change the path. A
//! key that would be a path segment `.` or `..` is refused, since servers resolve those.

use std::fmt::Write;

use hyper::Uri;

use crate::OpenCause;
use crate::escape::{quoted, user_text};
use crate::remote::CHECK_KEY;
use crate::remote::host::HostPort;

/// The separator of a key's parts.
const SEPARATOR: u8 = b':';

/// Longest URL in bytes, which servers accept; a longer list of keys is sent in several URLs.
const URL_BYTES_MAX: usize = 7_000;

/// A URL with placeholders for a key or a list of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UrlTemplate {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// Text of the URL that is the same for all keys.
    Text(String),
    /// `{key}`: the whole key.
    Key,
    /// `{key.N}`: a part of the key, counted here from zero.
    Nth(usize),
    /// `{keys}`: several keys separated by commas.
    Keys,
}

impl UrlTemplate {
    /// Parses the URL template given by the option called `option`.
    pub(crate) fn parse(option: &'static str, text: &str) -> Result<Self, OpenCause> {
        let seen = quoted("URL", text);
        let refused = |detail: String| OpenCause::Remote {
            option,
            detail: format!("{seen} {detail}"),
            remedy: "write a URL such as \"http://127.0.0.1:8000/items/{key}\"; {key}, {key.1} and {keys} may stand in its path and query",
        };
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, behind) = after.split_once('}').ok_or_else(|| refused("has { without }".into()))?;
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            parts.push(Part::of(name).ok_or_else(|| refused(format!("has {{{}}}", user_text(name))))?);
            rest = behind;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        let template = Self { parts };
        if template.parts.iter().all(|part| matches!(part, Part::Text(_))) {
            return Err(refused("has no place for the key".into()));
        }
        if template.is_batch() && template.parts.iter().any(|part| matches!(part, Part::Key | Part::Nth(_))) {
            return Err(refused("has {keys} and {key}".into()));
        }
        template.check_target().map_err(refused)?;
        Ok(template)
    }

    /// Checks that scheme, host and port come before the first placeholder, so that a key cannot
    /// choose the server.
    fn check_target(&self) -> Result<(), String> {
        let texts =
            self.parts.iter().filter_map(|part| if let Part::Text(text) = part { Some(text) } else { None });
        if texts.into_iter().any(|text| text.contains('#')) {
            return Err("has a #, behind which nothing is sent".into());
        }
        let Some(Part::Text(start)) = self.parts.first() else {
            return Err("has no host before its first {".into());
        };
        let uri: Uri = start.parse().map_err(|_| "is no URL".to_owned())?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err("is neither http:// nor https://".into());
        }
        let authority = uri.authority().ok_or("names no host")?;
        let whole = start.len() > start.find("://").map_or(0, |at| at + 3) + authority.as_str().len();
        if !whole {
            return Err("has a { in its host".into());
        }
        if authority.as_str().contains('@') {
            return Err("has a user in it: put credentials into `headers`".into());
        }
        if self.is_elsewhere() {
            return Err("has a part of its path that is . or .., which services take for ways up".into());
        }
        address(&uri).map(drop).ok_or_else(|| "names no host".into())
    }

    /// True if the template itself has a segment `.` or `..` in its path, so that no key has a URL.
    fn is_elsewhere(&self) -> bool {
        self.with("key").is_none()
    }

    /// True if the template has `{keys}`, so that one URL reads several keys.
    pub(crate) fn is_batch(&self) -> bool {
        self.parts.contains(&Part::Keys)
    }

    /// True if the template's scheme is `https`.
    pub(crate) fn is_secure(&self) -> bool {
        matches!(self.parts.first(), Some(Part::Text(start)) if start.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:")))
    }

    /// The URL of a key; none if the key lacks a part, or would be a segment `.` or `..`.
    pub(crate) fn of(&self, key: &[u8]) -> Option<Uri> {
        let mut url = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => url.push_str(text),
                Part::Key | Part::Keys => encode(key, &mut url)?,
                Part::Nth(at) => encode(key.split(|&byte| byte == SEPARATOR).nth(*at)?, &mut url)?,
            }
        }
        if has_dots(&url) { None } else { url.parse().ok() }
    }

    /// The URLs that together read all `keys`, each with its number of keys. None instead of a URL
    /// for a key of many thousand bytes, or one that would be a segment `.` or `..`.
    pub(crate) fn of_all(&self, keys: &[&str]) -> Vec<(Option<Uri>, usize)> {
        let fixed: usize =
            self.parts.iter().map(|part| if let Part::Text(text) = part { text.len() } else { 0 }).sum();
        let mut urls = Vec::new();
        let (mut list, mut count) = (String::new(), 0);
        for key in keys {
            let before = list.len();
            if count > 0 {
                list.push(',');
            }
            let _ = encode(key.as_bytes(), &mut list);
            if count > 0 && fixed + list.len() > URL_BYTES_MAX {
                let next = list.split_off(before + 1);
                list.truncate(before);
                urls.push((self.with(&list), count));
                (list, count) = (next, 0);
            }
            count += 1;
        }
        if count > 0 {
            urls.push((self.with(&list), count));
        }
        urls
    }

    fn with(&self, list: &str) -> Option<Uri> {
        let mut url = String::new();
        for part in &self.parts {
            url.push_str(if let Part::Text(text) = part { text } else { list });
        }
        if has_dots(&url) { None } else { url.parse().ok() }
    }

    /// A key that has as many parts as the template needs, to check the server.
    pub(crate) fn check_key(&self) -> String {
        let parts = self.parts.iter().map(|part| if let Part::Nth(at) = part { at + 1 } else { 1 });
        vec![CHECK_KEY; parts.max().unwrap_or(1)].join(":")
    }
}

impl Part {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "key" => Self::Key,
            "keys" => Self::Keys,
            name => {
                let number: usize = name.strip_prefix("key.")?.parse().ok()?;
                Self::Nth(number.checked_sub(1).filter(|&at| at < PARTS_MAX)?)
            }
        })
    }
}

/// Most parts of a key that a template may use.
const PARTS_MAX: usize = 16;

/// The host and port of a URL.
pub(crate) fn address(uri: &Uri) -> Option<HostPort> {
    let port = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    HostPort::parse("url", uri.authority()?.as_str(), port).ok()
}

/// Appends `bytes` with every byte but unreserved characters as `%XX`; none if `bytes` is empty.
fn encode(bytes: &[u8], out: &mut String) -> Option<()> {
    for &byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte.into()),
            _ => write!(out, "%{byte:02X}").expect("a string takes everything"),
        }
    }
    (!bytes.is_empty()).then_some(())
}

/// True if the path of `url` has a segment `.` or `..`.
fn has_dots(url: &str) -> bool {
    let path = url.split('?').next().unwrap_or_default();
    path.split('/').any(|part| part == "." || part == "..")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn template(text: &str) -> UrlTemplate {
        UrlTemplate::parse("url", text).unwrap()
    }

    fn url(text: &str, key: &str) -> Option<String> {
        template(text).of(key.as_bytes()).map(|uri| uri.to_string())
    }

    #[test]
    fn key_replaces_the_placeholders_of_a_url_template() {
        assert_eq!(url("http://h:1/i/{key}", "a b/ü?%").unwrap(), "http://h:1/i/a%20b%2F%C3%BC%3F%25");
        assert_eq!(url("http://h/{key.2}?of={key.1}&x=1", "user:7").unwrap(), "http://h/7?of=user&x=1");
        assert_eq!(url("https://h/{key}/{key}", "k").unwrap(), "https://h/k/k");
    }

    #[test]
    fn key_without_a_part_or_with_dot_segments_has_no_url() {
        assert_eq!(url("http://h/{key.2}", "user"), None);
        assert_eq!(url("http://h/{key.2}", "user:"), None);
        for key in ["", ".", ".."] {
            assert_eq!(url("http://h/i/{key}", key), None, "{key:?}");
        }
        assert_eq!(url("http://h/i/x{key}", "..").unwrap(), "http://h/i/x..");
        assert_eq!(url("http://h/i?k={key}", "..").unwrap(), "http://h/i?k=..");
    }

    #[test]
    fn invalid_url_templates_are_refused() {
        for text in [
            "http://h/items",
            "http://h/{key",
            "http://h/{kez}",
            "http://h/{key.0}",
            "http://h/{key.17}",
            "http://h/{keys}/{key}",
            "ftp://h/{key}",
            "h/{key}",
            "{key}",
            "http://{key}/",
            "http://h{key}/",
            "http://h:{key}/",
            "http://user:secret@h/{key}",
            "http://h:0/{key}",
            "http://h/#/{key}",
            "http://h/../{key}",
        ] {
            let refused = UrlTemplate::parse("url", text).unwrap_err().to_string();
            assert!(refused.contains("`url`") && refused.contains("/items/{key}"), "{refused}");
            assert!(!refused.contains("secret"), "{refused}");
        }
    }

    #[test]
    fn many_keys_are_split_into_urls_of_bounded_length() {
        let batch = template("http://h/all?ids={keys}&v=1");
        assert!(batch.is_batch());
        let text = |url: &Option<Uri>| url.as_ref().unwrap().to_string();
        let urls = batch.of_all(&["a,b", "c"]);
        assert_eq!(text(&urls[0].0), "http://h/all?ids=a%2Cb,c&v=1");
        let long = "k".repeat(3_000);
        let urls = batch.of_all(&[&long, &long, &long, "x"]);
        let counts: Vec<usize> = urls.iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [2, 2]);
        assert!(text(&urls[1].0).ends_with("kkk,x&v=1"));
        assert!(batch.of_all(&[]).is_empty());
    }

    #[test]
    fn keys_without_a_url_keep_their_position_among_the_urls() {
        let too_long = "k".repeat(70_000);
        let urls = template("http://h/all?ids={keys}").of_all(&["a", &too_long, "b"]);
        let asked: Vec<_> = urls.iter().map(|(url, count)| (url.is_some(), *count)).collect();
        assert_eq!(asked, [(true, 1), (false, 1), (true, 1)]);
        let path = template("http://h/items/{keys}");
        assert_eq!(path.of_all(&[".."]), [(None, 1)]);
        assert!(path.of_all(&["..", "a"])[0].0.is_some());
    }

    proptest! {
        #[test]
        fn key_does_not_change_other_parts_of_the_url(key: Vec<u8>) {
            if let Some(uri) = template("http://h:7/a/{key}/b?c").of(&key) {
                prop_assert_eq!(uri.authority().unwrap().as_str(), "h:7");
                prop_assert_eq!(uri.path().split('/').count(), 4);
                prop_assert_eq!(uri.query(), Some("c"));
            }
        }

        #[test]
        fn any_url_template_is_parsed_or_refused(text: String) {
            let _ = UrlTemplate::parse("url", &text);
        }
    }
}
