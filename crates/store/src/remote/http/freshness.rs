//! The freshness lifetime (the time for which a value may be reused) and the tags of a response;
//! pure.
//!
//! An explicit lifetime follows the rules of RFC 9111 for a shared cache (sections 4.2.1 and
//! 5.2.2). Without one, the configuration determines the lifetime; there are no heuristics from
//! dates. The other rules of the RFC, about storing and validating responses, are not implemented.

use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::{AGE, CACHE_CONTROL, HeaderName};
use sherwood_model::Tags;

/// Longest freshness lifetime in seconds; the RFC treats longer ones as this one.
const SECONDS_MAX: u64 = 1 << 31;

/// Names of response headers with tags, each with the byte that separates them.
static TAGS: [(HeaderName, u8); 2] =
    [(HeaderName::from_static("cache-tag"), b','), (HeaderName::from_static("surrogate-key"), b' ')];

/// The freshness lifetime that the response headers state; none if they state none.
pub(super) fn good_for(headers: &HeaderMap) -> Option<Duration> {
    let (mut shared, mut any) = (None, None);
    for directive in list(headers, &CACHE_CONTROL) {
        let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
        match name.trim().to_ascii_lowercase().as_str() {
            "no-store" | "no-cache" | "private" => return Some(Duration::ZERO),
            "s-maxage" => shared = shared.or(Some(seconds(value))),
            "max-age" => any = any.or(Some(seconds(value))),
            _ => {}
        }
    }
    let lifetime = shared.or(any)?;
    let age = list(headers, &AGE).next().map_or(0, seconds);
    Some(Duration::from_secs(lifetime.saturating_sub(age)))
}

/// The tags that the response headers state.
pub(super) fn tags(headers: &HeaderMap) -> Tags {
    let values = TAGS.iter().flat_map(|(name, separator)| {
        let values = headers.get_all(name).into_iter();
        values.flat_map(move |value| value.as_bytes().split(move |byte| byte == separator))
    });
    values.map(<[u8]>::trim_ascii).filter(|tag| !tag.is_empty()).collect()
}

/// Returns the elements of a list header such as `cache-control`, from all its lines; elements that
/// are not text are skipped.
fn list<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim)
}

/// Parses a number of seconds, with or without quotes; an invalid one is 0, so that the value is
/// not kept.
fn seconds(text: &str) -> u64 {
    let digits = text.trim().trim_matches('"');
    match digits.parse::<u64>() {
        Ok(seconds) => seconds.min(SECONDS_MAX),
        Err(_) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => SECONDS_MAX,
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let lines = lines.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        lines.collect()
    }

    fn lifetime(cache_control: &str) -> Option<u64> {
        good_for(&headers(&[("cache-control", cache_control)])).map(|good_for| good_for.as_secs())
    }

    #[test]
    fn freshness_lifetime_is_read_from_cache_control() {
        assert_eq!(lifetime("max-age=60"), Some(60));
        assert_eq!(lifetime("public, Max-Age=\"60\""), Some(60));
        assert_eq!(lifetime("max-age=60, s-maxage=5"), Some(5));
        for zero in ["no-store", "no-cache, max-age=60", "private", "max-age=x", "max-age=-1", "max-age"] {
            assert_eq!(lifetime(zero), Some(0), "{zero}");
        }
        assert_eq!(lifetime("max-age=99999999999999999999"), Some(1 << 31));
        assert_eq!((lifetime("public"), lifetime(""), good_for(&HeaderMap::new())), (None, None, None));
    }

    #[test]
    fn age_of_a_response_is_subtracted_from_its_freshness_lifetime() {
        let aged = |age: &str| good_for(&headers(&[("cache-control", "max-age=60"), ("age", age)]));
        assert_eq!(aged("15"), Some(Duration::from_secs(45)));
        assert_eq!(aged("75"), Some(Duration::ZERO));
        assert_eq!(good_for(&headers(&[("age", "5")])), None);
    }

    #[test]
    fn tags_are_read_from_cache_tag_and_surrogate_key() {
        let tags = tags(&headers(&[("cache-tag", "user:7, page"), ("surrogate-key", " a  b ")]));
        for tag in ["user:7", "page", "a", "b"] {
            assert!(tags.may_hold(tag.as_bytes()), "{tag}");
        }
        assert_eq!(tags, [&b"user:7"[..], b"page", b"a", b"b"].into_iter().collect());
        assert!(super::tags(&HeaderMap::new()).is_empty());
    }
}
