//! The meaning of an HTTP response, by its status and body; pure.

use std::collections::BTreeMap;

use bytes::Bytes;
use hyper::header::LOCATION;
use hyper::{HeaderMap, StatusCode};
use serde_json::value::RawValue;

use crate::escape::user_text;
use crate::remote::{Each, json};
use crate::{Cause, Fault, Found};

/// The meaning of the status of a response to a read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// The body of the response is the value.
    Body,
    /// The key does not exist in the service.
    Absent,
}

/// Interprets the status of the response of `address` to a read.
pub(super) fn read(status: StatusCode, headers: &HeaderMap, address: &str) -> Result<Read, Cause> {
    match status {
        StatusCode::OK | StatusCode::NON_AUTHORITATIVE_INFORMATION => Ok(Read::Body),
        StatusCode::NOT_FOUND | StatusCode::GONE => Ok(Read::Absent),
        _ => Err(refusal(status, headers, address)),
    }
}

/// Interprets the status of the response to a write.
pub(super) fn written(status: StatusCode, headers: &HeaderMap, address: &str) -> Result<(), Cause> {
    match status {
        status if status.is_success() => Ok(()),
        // Proxies also return this when a service breaks off during the request.
        StatusCode::SERVICE_UNAVAILABLE => Err(Cause::Server { detail: format!("status {status}") }),
        _ => Err(match refusal(status, headers, address) {
            // A service that redirects after a form has executed it.
            Cause::Statement { detail } if status.is_redirection() => Cause::Server { detail },
            cause => cause,
        }),
    }
}

/// Interprets the status of the response to a removal; removing an absent key succeeds.
pub(super) fn removed(status: StatusCode, headers: &HeaderMap, address: &str) -> Result<(), Cause> {
    let gone = matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE);
    if gone { Ok(()) } else { written(status, headers, address) }
}

fn refusal(status: StatusCode, headers: &HeaderMap, address: &str) -> Cause {
    let detail = format!("status {status}");
    match status.as_u16() {
        // A forbidden request may be so for its key; refused credentials apply to every key.
        401 | 407 => Cause::Credentials { detail },
        403 => Cause::Forbidden { detail },
        408 | 429 | 503 => Cause::Busy { detail },
        300..400 => {
            let to = headers
                .get(LOCATION)
                .map(|to| format!(" to {}", user_text(&String::from_utf8_lossy(to.as_bytes()))));
            let to = to.unwrap_or_default();
            Cause::Statement {
                detail: format!("{detail}{to}; redirects are not followed: name the last address"),
            }
        }
        400..500 => Cause::Statement { detail },
        500.. => Cause::Server { detail },
        _ => Cause::Protocol { address: address.to_owned(), expected: "HTTP's status 200 or 404", detail },
    }
}

/// The result of a call, from the results of its keys; keys without a request are absent. Each key
/// has its own answer, which may be an error, if at least one answer shows that the service works:
/// a key was found or not, or its request was refused. Otherwise the call failed, with the first
/// key's cause.
pub(crate) fn settled(each: Vec<Option<Each>>) -> Result<Vec<Each>, Cause> {
    let declines = |cause: &Cause| cause.fault() == Fault::Rejected;
    let works = each.iter().flatten().any(|answer| answer.as_ref().map_or_else(declines, |_| true));
    let failure = each.iter().flatten().find_map(|answer| answer.as_ref().err());
    match failure.filter(|_| !works) {
        Some(cause) => Err(cause.clone()),
        None => Ok(each.into_iter().map(|answer| answer.unwrap_or(Ok(None))).collect()),
    }
}

/// Reads the values of `keys` from a JSON object: the value of a string is its text, `null` is
/// absent, and anything else is its JSON text unchanged. A malformed value is an error of its key
/// only. If a key occurs several times, its last value counts. Time and memory are linear in the
/// body.
pub(super) fn batch(body: &[u8], keys: &[&str], like: &Found, address: &str) -> Result<Vec<Each>, Cause> {
    let protocol = |detail: String| Cause::Protocol {
        address: address.to_owned(),
        expected: "a JSON object from key to value",
        detail,
    };
    let mut values: BTreeMap<&str, Option<&[u8]>> = keys.iter().map(|&key| (key, None)).collect();
    for member in json::members(json::without_mark(body)) {
        let member = member.map_err(protocol)?;
        if let Some(value) = member.name().and_then(|name| values.get_mut(&*name)) {
            *value = Some(member.value());
        }
    }
    let found = |key: &&str| {
        let Some(value) = values.get(*key).copied().flatten() else { return Ok(None) };
        let value = value_of(value).map_err(|error| protocol(format!("the key's value: {error}")))?;
        Ok(value.map(|value| Found { value, ..like.clone() }))
    };
    Ok(keys.iter().map(found).collect())
}

/// The value that a JSON text stands for; none for `null`.
fn value_of(json: &[u8]) -> serde_json::Result<Option<Bytes>> {
    match json {
        b"null" => Ok(None),
        [b'"', ..] => serde_json::from_slice(json).map(|text: String| Some(text.into())),
        json => serde_json::from_slice::<&RawValue>(json).map(|_| Some(Bytes::copy_from_slice(json))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_status_of_a_read_is_mapped_to_its_cause() {
        let label =
            |code| read(StatusCode::from_u16(code).unwrap(), &HeaderMap::new(), "h:1").map_err(|c| c.label());
        assert_eq!(
            (label(200), label(404), label(410)),
            (Ok(Read::Body), Ok(Read::Absent), Ok(Read::Absent))
        );
        for (code, expected) in [
            (204, "protocol"),
            (301, "statement"),
            (400, "statement"),
            (401, "credentials"),
            (403, "credentials"),
            (418, "statement"),
            (429, "busy"),
            (500, "server"),
            (503, "busy"),
            (599, "server"),
        ] {
            assert_eq!(label(code), Err(expected), "{code}");
        }
    }

    #[test]
    fn redirect_response_is_an_error_that_names_its_target() {
        let headers = [(LOCATION, "http://other/".parse().unwrap())].into_iter().collect();
        let said = read(StatusCode::FOUND, &headers, "h:1").unwrap_err().to_string();
        assert!(said.contains("http://other/") && said.contains("not followed"), "{said}");
    }

    #[test]
    fn any_success_status_acknowledges_a_write_and_not_found_a_removal() {
        let none = HeaderMap::new();
        for code in [200, 201, 202, 204] {
            assert_eq!(written(StatusCode::from_u16(code).unwrap(), &none, "h:1"), Ok(()));
        }
        assert_eq!(removed(StatusCode::NOT_FOUND, &none, "h:1"), Ok(()));
        assert_eq!(written(StatusCode::NOT_FOUND, &none, "h:1").unwrap_err().label(), "statement");
        let unavailable = written(StatusCode::SERVICE_UNAVAILABLE, &none, "h:1").unwrap_err();
        assert_eq!(unavailable.fault(), crate::Fault::Broken, "it may be done");
        for redirect in [StatusCode::SEE_OTHER, StatusCode::TEMPORARY_REDIRECT] {
            let redirected = written(redirect, &none, "h:1").unwrap_err();
            assert_eq!((redirected.label(), redirected.fault()), ("server", crate::Fault::Broken));
            assert!(redirected.to_string().contains("name the last address"), "{redirected}");
        }
        assert_eq!(removed(StatusCode::BAD_GATEWAY, &none, "h:1").unwrap_err().label(), "server");
    }

    #[test]
    fn call_fails_if_the_answer_of_no_key_shows_that_the_service_works() {
        let of = |code: u16| {
            let status = StatusCode::from_u16(code).unwrap();
            read(status, &HeaderMap::new(), "h:1").map(|read| (read == Read::Body).then(Found::default))
        };
        let call = |codes: &[Option<u16>]| {
            let each = settled(codes.iter().map(|code| code.map(of)).collect());
            let labels = |each: Vec<Each>| {
                each.iter().map(|one| one.as_ref().map_or_else(Cause::label, |_| "")).collect()
            };
            each.map(labels).map_err(|cause| cause.label())
        };
        for (codes, expected) in [
            (&[Some(200), Some(500), Some(404)][..], Ok(vec!["", "server", ""])),
            (&[Some(404), Some(503)], Ok(vec!["", "busy"])),
            (&[Some(403)], Ok(vec!["credentials"])),
            (&[Some(200), Some(401)], Ok(vec!["", "credentials"])),
            (&[Some(401)], Err("credentials")),
            (&[Some(407)], Err("credentials")),
            (&[Some(500), Some(400), None], Ok(vec!["server", "statement", ""])),
            (&[None], Ok(vec![""])),
            (&[], Ok(vec![])),
            (&[Some(503), Some(500)], Err("busy")),
            (&[None, Some(500)], Err("server")),
        ] {
            assert_eq!(call(codes), expected, "{codes:?}");
        }
    }

    #[test]
    fn json_response_to_many_keys_is_split_into_their_values() {
        let body = br#"{"a":"x\ny","b":{"n": 1.50},"c":null,"z":0}"#;
        let found =
            batch(body, &["b", "a", "c", "d"], &Found { flags: 3, ..Found::default() }, "h:1").unwrap();
        let values: Vec<_> = found
            .iter()
            .map(|one| one.as_ref().unwrap().as_ref().map(|one| (&one.value[..], one.flags)))
            .collect();
        assert_eq!(values, [Some((&b"{\"n\": 1.50}"[..], 3)), Some((b"x\ny", 3)), None, None]);
        for body in ["", "[]", "{\"a\":", "{\"a\":1} x", "\u{0}", "<html>"] {
            let refused = batch(body.as_bytes(), &["a"], &Found::default(), "h:1").unwrap_err();
            assert_eq!(refused.label(), "protocol", "{body}");
        }
    }

    /// The results of the keys a to c in `body`: text, or the label of an error.
    fn each(body: &[u8]) -> [Result<Option<String>, &'static str>; 3] {
        let text = |found: Found| String::from_utf8(found.value.to_vec()).unwrap();
        let found = batch(body, &["a", "b", "c"], &Found::default(), "h:1").unwrap();
        let each = found.into_iter().map(|one| one.map(|found| found.map(text)).map_err(|e| e.label()));
        each.collect::<Vec<_>>().try_into().unwrap()
    }

    #[test]
    fn malformed_value_of_a_json_object_fails_only_its_own_key() {
        for wrong in [
            &br#""\ud800""#[..],
            br#""\udc00\ud800""#,
            b"\"\xff\"",
            b"[\"\xff\"]",
            b"\"\n\"",
            b"NaN",
            b"-Infinity",
            b"01",
            b"1.",
            b"[1}",
            b"{\"x\" 1}",
            b"undefined",
            b"",
        ] {
            let body = [b"{\"a\":\"1\",\"b\":", wrong, b",\"c\":2}"].concat();
            let expected = [Ok(Some("1".into())), Err("protocol"), Ok(Some("2".into()))];
            assert_eq!(each(&body), expected, "{}", String::from_utf8_lossy(wrong));
        }
        let said = batch(br#"{"a":"\ud800"}"#, &["a"], &Found::default(), "h:1").unwrap().remove(0);
        assert!(said.unwrap_err().to_string().contains("the key's value: "));
    }

    #[test]
    fn json_values_other_than_strings_are_returned_as_written() {
        for value in ["18446744073709551616", "-0", "1e999", "0.1000", r#"["\ud800"]"#, "[null]", "true"] {
            let body =
                format!("\u{feff} {{\"b\": {value} ,\"\\u0063\":null,\"\\ud800\":1,\"a\":1,\"a\":\"2\"}}\n");
            assert_eq!(each(body.as_bytes()), [Ok(Some("2".into())), Ok(Some(value.into())), Ok(None)]);
        }
    }
}
