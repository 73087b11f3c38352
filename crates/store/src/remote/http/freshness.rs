//! The freshness lifetime (the time for which a value may be reused) and the tags of a response;
//! pure.
//!
//! An explicit lifetime follows the rules of RFC 9111 for a shared cache (sections 4.1, 4.2.1 and
//! 5); the crate `http-cache-semantics` implements those about dates. Without an explicit lifetime,
//! the configuration determines it; there are no heuristics from dates. The other rules of the RFC,
//! about storing and validating responses, are not implemented.

use std::time::{Duration, SystemTime};

use http_cache_semantics::{CacheOptions, CachePolicy};
use hyper::header::{AGE, CACHE_CONTROL, DATE, EXPIRES, HeaderName, PRAGMA, VARY};
use hyper::{HeaderMap, Request, Response};
use sherwood_model::Tags;

/// Longest freshness lifetime in seconds; the RFC treats longer ones as this one.
const SECONDS_MAX: u64 = 1 << 31;

/// Names of response headers with tags, each with the byte that separates them.
static TAGS: [(HeaderName, u8); 2] =
    [(HeaderName::from_static("cache-tag"), b','), (HeaderName::from_static("surrogate-key"), b' ')];

/// Names of request headers that differ between the requests of one store. All other headers come
/// from its configuration and are the same in every request, so a response that varies with them
/// can be reused.
const OF_ONE_REQUEST: [&str; 2] = ["traceparent", "tracestate"];

/// Returns the freshness lifetime stated by the headers of a response that arrived at the time
/// `now`; none if they state none.
pub(super) fn good_for(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
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
    if varies(headers) {
        return Some(Duration::ZERO);
    }
    match shared.or(any) {
        Some(lifetime) => {
            let age = list(headers, &AGE).next().map_or(0, seconds);
            Some(Duration::from_secs(lifetime.saturating_sub(age)))
        }
        None => without_age_limit(headers, now),
    }
}

/// True if the response applies only to the request that it answers.
fn varies(headers: &HeaderMap) -> bool {
    let is_own = |name: &str| name == "*" || OF_ONE_REQUEST.iter().any(|own| own.eq_ignore_ascii_case(name));
    list(headers, &VARY).any(is_own)
}

/// Returns the freshness lifetime stated by `Pragma`, which is honored only without
/// `Cache-Control`, or by `Expires`.
fn without_age_limit(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let is_no_cache = |directive: &str| directive.eq_ignore_ascii_case("no-cache");
    if !headers.contains_key(CACHE_CONTROL) && list(headers, &PRAGMA).any(is_no_cache) {
        return Some(Duration::ZERO);
    }
    if !headers.contains_key(EXPIRES) {
        return None;
    }
    let mut dates = Response::new(());
    for name in [EXPIRES, DATE, AGE] {
        // Of a header given twice the first one counts.
        if let Some(value) = headers.get(&name) {
            dates.headers_mut().insert(name, value.clone());
        }
    }
    let options = CacheOptions { cache_heuristic: 0.0, ..CacheOptions::default() };
    let policy = CachePolicy::new_options(&Request::new(()), &dates, now, options);
    Some(policy.time_to_live(now).min(Duration::from_secs(SECONDS_MAX)))
}

/// The tags that the response headers state.
pub(super) fn tags(headers: &HeaderMap) -> Tags {
    let values = TAGS.iter().flat_map(|(name, separator)| {
        let values = headers.get_all(name).into_iter();
        values.flat_map(move |value| value.as_bytes().split(move |byte| byte == separator))
    });
    values.map(<[u8]>::trim_ascii).filter(|tag| !tag.is_empty()).collect()
}

/// Returns the elements of a list header such as `cache-control`, from all its lines; lines that
/// are not text are skipped. A comma in quotes is a part of its element, unless the quotes are
/// unbalanced.
fn list<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    let elements = lines.flat_map(|line| {
        let has_pairs = line.matches('"').count() % 2 == 0;
        let (mut is_quoted, mut is_escaped) = (false, false);
        line.split(move |c| {
            if c == '"' && !is_escaped {
                is_quoted = has_pairs && !is_quoted;
            }
            is_escaped = c == '\\' && is_quoted && !is_escaped;
            c == ',' && !is_quoted
        })
    });
    elements.map(str::trim)
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
        stated(&[("cache-control", cache_control)])
    }

    /// The lifetime in seconds that these headers state at the time [`NOW`].
    fn stated(lines: &[(&'static str, &str)]) -> Option<u64> {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
        good_for(&headers(lines), now).map(|good_for| good_for.as_secs())
    }

    /// Sun, 06 Nov 1994 08:49:37 GMT.
    const NOW: u64 = 784_111_777;

    #[test]
    fn freshness_lifetime_is_read_from_cache_control() {
        assert_eq!(lifetime("max-age=60"), Some(60));
        assert_eq!(lifetime("public, Max-Age=\"60\""), Some(60));
        assert_eq!(lifetime("max-age=60, s-maxage=5"), Some(5));
        for zero in ["no-store", "no-cache, max-age=60", "private", "max-age=x", "max-age=-1", "max-age"] {
            assert_eq!(lifetime(zero), Some(0), "{zero}");
        }
        assert_eq!(lifetime("max-age=99999999999999999999"), Some(1 << 31));
        assert_eq!((lifetime("public"), lifetime(""), stated(&[])), (None, None, None));
    }

    #[test]
    fn age_of_a_response_is_subtracted_from_its_freshness_lifetime() {
        let aged = |age: &str| stated(&[("cache-control", "max-age=60"), ("age", age)]);
        assert_eq!(aged("15"), Some(45));
        assert_eq!(aged("75"), Some(0));
        assert_eq!(stated(&[("age", "5")]), None);
    }

    #[test]
    fn quoted_text_in_cache_control_is_not_read_as_directives() {
        assert_eq!(lifetime(r#"x="a, max-age=60""#), None);
        assert_eq!(lifetime(r#"x="a\"\", no-store, b", max-age=60"#), Some(60));
        assert_eq!(lifetime(r#"no-cache="set-cookie, x", max-age=60"#), Some(0));
        assert_eq!(lifetime(r#"x="a, no-store"#), Some(0), "the quote does not close");
        assert_eq!(lifetime("max-age=60, max-age=5"), Some(60), "the first one counts");
        assert_eq!(stated(&[("cache-control", "max-age=60"), ("cache-control", "no-store")]), Some(0));
    }

    #[test]
    fn expires_determines_the_lifetime_unless_cache_control_states_one() {
        let (now, later) = ("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:50:37 GMT");
        assert_eq!(stated(&[("expires", later)]), Some(60));
        assert_eq!(stated(&[("expires", later), ("date", now), ("age", "15")]), Some(45));
        assert_eq!(stated(&[("expires", later), ("date", "Sun, 06 Nov 1994 08:50:07 GMT")]), Some(30));
        assert_eq!(stated(&[("expires", later), ("cache-control", "public")]), Some(60));
        assert_eq!(stated(&[("expires", "0"), ("cache-control", "max-age=5")]), Some(5));
        assert_eq!(stated(&[("expires", later), ("cache-control", "s-maxage=5")]), Some(5));
        assert_eq!(stated(&[("expires", later), ("cache-control", "no-store")]), Some(0));
        for past in
            [now, "Sat, 05 Nov 1994 08:49:37 GMT", "0", "-1", "", "soon", "Thu, 01 Jan 1970 00:00:00 GMT"]
        {
            assert_eq!(stated(&[("expires", past)]), Some(0), "{past}");
        }
        assert_eq!(stated(&[("expires", "Fri, 31 Dec 9999 23:59:59 GMT")]), Some(SECONDS_MAX));
        assert_eq!(stated(&[("expires", later), ("expires", "0")]), Some(60), "the first one counts");
        assert_eq!(stated(&[("last-modified", now), ("date", later)]), None, "there are no heuristics");
    }

    #[test]
    fn pragma_no_cache_is_honored_only_without_cache_control() {
        assert_eq!(stated(&[("pragma", "No-Cache")]), Some(0));
        assert_eq!(stated(&[("pragma", "no-cache"), ("expires", "Sun, 06 Nov 1994 08:50:37 GMT")]), Some(0));
        assert_eq!(stated(&[("pragma", "no-cache"), ("cache-control", "max-age=60")]), Some(60));
        assert_eq!(stated(&[("pragma", "no-cache"), ("cache-control", "public")]), None);
        assert_eq!(stated(&[("pragma", "x")]), None);
    }

    #[test]
    fn response_that_varies_with_request_specific_headers_is_not_reused() {
        let varying = |vary: &str| stated(&[("cache-control", "max-age=60"), ("vary", vary)]);
        for own in ["*", "accept, *", "Traceparent", "accept-encoding,tracestate"] {
            assert_eq!(varying(own), Some(0), "{own}");
            assert_eq!(stated(&[("vary", own)]), Some(0), "{own}");
        }
        for shared in ["accept-encoding", "Authorization, Accept", ""] {
            assert_eq!(varying(shared), Some(60), "{shared}");
            assert_eq!(stated(&[("vary", shared)]), None, "{shared}");
        }
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
