//! Writes the answer to a request as JSON.
//!
//! An answer has a short object for each key and each value once. A general serializer checks every
//! byte by itself and grows its buffer as it goes, which costs as much as all the look-ups. This
//! one fills a buffer of the right size; texts are checked for escapes many bytes at a time and
//! copied.

use super::body::{KeyAnswer, RequestAnswer};

/// Upper bound of a key's object without its texts, bytes.
const KEY_BYTES: usize = 216;
/// The quotes around a text.
const QUOTES: usize = 2;

/// Returns the answer as JSON, identical to serde's output, and a newline.
pub(super) fn encode(answer: &RequestAnswer<'_>) -> Vec<u8> {
    let RequestAnswer { latency_ms, blocking_backend, results } = answer;
    let mut out = Vec::with_capacity(KEY_BYTES + results.iter().map(bytes_of).sum::<usize>());
    out.extend_from_slice(b"{\"latency_ms\":");
    other(&mut out, latency_ms);
    out.extend_from_slice(b",\"blocking_backend\":");
    match blocking_backend {
        Some(name) => text(&mut out, name),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b",\"results\":[");
    let mut latency = Latency::default();
    for (position, key) in results.iter().enumerate() {
        if position > 0 {
            out.push(b',');
        }
        write_key(&mut out, key, &mut latency);
    }
    out.extend_from_slice(b"]}\n");
    out
}

/// Expected length of a key's JSON object; exceeded only if names, keys or errors are long or have
/// escapes.
fn bytes_of(answer: &KeyAnswer<'_>) -> usize {
    let error = answer.error.as_ref().map_or(0, String::len);
    KEY_BYTES + answer.backend.len() + answer.key.len() + answer.value_bytes + error
}

/// Returns the length of a text as JSON, bytes. It is the text's length and two exactly if nothing
/// in it is escaped.
pub(super) fn text_bytes(text: &str) -> usize {
    let more = if is_plain(text.as_bytes()) { 0 } else { text.bytes().map(escape_bytes).sum() };
    QUOTES + text.len() + more
}

/// Returns the number of bytes beyond one that a byte takes in JSON.
fn escape_bytes(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 1,
        0..0x20 => 5,
        _ => 0,
    }
}

fn write_key(out: &mut Vec<u8>, answer: &KeyAnswer<'_>, latency: &mut Latency) {
    let KeyAnswer {
        backend,
        key,
        status,
        value,
        value_bytes,
        encoding,
        latency_ms,
        age_ms,
        late,
        expected_ms,
        error,
    } = answer;
    out.extend_from_slice(b"{\"backend\":");
    text(out, backend);
    out.extend_from_slice(b",\"key\":");
    text(out, key);
    out.extend_from_slice(b",\"status\":");
    text(out, status);
    if let Some(value) = value {
        out.extend_from_slice(b",\"value\":");
        // The length tells whether the value has escapes; scanning it again would cost as much as
        // copying it.
        match *value_bytes == value.len() + QUOTES {
            true => plain(out, value),
            false => other(out, value),
        }
    }
    if let Some(encoding) = encoding {
        out.extend_from_slice(b",\"encoding\":");
        text(out, encoding);
    }
    out.extend_from_slice(b",\"latency_ms\":");
    out.extend_from_slice(latency.text(*latency_ms));
    if let Some(age_ms) = age_ms {
        out.extend_from_slice(b",\"age_ms\":");
        other(out, age_ms);
    }
    if *late {
        out.extend_from_slice(b",\"late\":true");
    }
    if let Some(expected_ms) = expected_ms {
        out.extend_from_slice(b",\"expected_ms\":");
        other(out, expected_ms);
    }
    if let Some(error) = error {
        out.extend_from_slice(b",\"error\":");
        text(out, error);
    }
    out.push(b'}');
}

/// The latest latency and its JSON text, kept because most keys are cache hits and have the same
/// latency.
#[derive(Default)]
struct Latency {
    ms: f64,
    text: Vec<u8>,
}

impl Latency {
    fn text(&mut self, ms: f64) -> &[u8] {
        if self.text.is_empty() || ms != self.ms {
            self.ms = ms;
            self.text.clear();
            other(&mut self.text, &ms);
        }
        &self.text
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    match is_plain(text.as_bytes()) {
        true => plain(out, text),
        false => other(out, text),
    }
}

/// Writes a text that is [plain](is_plain).
fn plain(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

/// Returns whether JSON shows the text unescaped.
fn is_plain(text: &[u8]) -> bool {
    let is_escaped = |byte: u8| byte < b' ' || byte == b'"' || byte == b'\\';
    // Without an early exit inside a chunk, its bytes are compared with vector instructions.
    text.chunks(64).all(|chunk| !chunk.iter().fold(false, |any, &byte| any | is_escaped(byte)))
}

fn other<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value)
        .expect("texts and numbers can be written, and a vector takes every write");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Key = (String, Option<String>, Option<String>, u32);

    fn answer(
        latency_us: u32,
        blocking_backend: Option<&str>,
        keys: &[Key],
        check: impl FnOnce(RequestAnswer<'_>),
    ) {
        let results = keys.iter().map(|(key, value, error, latency_us)| KeyAnswer {
            backend: "catalog",
            key,
            status: "hit",
            value: value.as_deref().map(Into::into),
            value_bytes: value.as_deref().map_or(0, text_bytes),
            encoding: value.as_ref().map(|_| "utf8"),
            latency_ms: f64::from(*latency_us) / 1e3,
            age_ms: error.as_ref().map(|error| error.len() as f64 / 8.0),
            late: latency_us % 2 == 0,
            expected_ms: error.as_ref().map(|error| error.len() as f64 / 3.0),
            error: error.clone(),
        });
        let latency_ms = f64::from(latency_us) / 1e3;
        check(RequestAnswer { latency_ms, blocking_backend, results: results.collect() });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn text_bytes_returns_the_length_written_as_json(written in "[ -~\u{0}-\u{1f}\u{7f}\u{e9}]{0,100}") {
            assert_eq!(text_bytes(&written), serde_json::to_vec(&written).expect("serializes").len());
        }

        #[test]
        fn json_output_equals_serdes(
            latency_us: u32,
            blocking_backend in prop::option::of("[a-z\"]{1,5}"),
            keys in prop::collection::vec((".{1,70}", prop::option::of(".{0,200}"), prop::option::of(".{0,9}"), 0..3u32), 0..5),
        ) {
            answer(latency_us, blocking_backend.as_deref(), &keys, |answer| {
                let expected = serde_json::to_string(&answer).expect("serializes") + "\n";
                assert_eq!(encode(&answer), expected.into_bytes());
            });
        }
    }

    #[test]
    fn every_byte_that_json_escapes_is_found_at_any_position() {
        for byte in 0..0x80u8 {
            for place in [0, 63, 64, 99] {
                let mut text = vec![b'x'; 100];
                text[place] = byte;
                let escaped = byte < b' ' || byte == b'"' || byte == b'\\';
                assert_eq!(is_plain(&text), !escaped, "{byte} at {place}");
            }
        }
    }

    #[test]
    fn json_buffer_is_as_large_as_needed_from_the_start() {
        let key = ("k".repeat(20), Some("v".repeat(1024)), None, 123_456_789);
        answer(1, None, &vec![key; 50], |answer| {
            let out = encode(&answer);
            assert!(out.len() <= KEY_BYTES + answer.results.iter().map(bytes_of).sum::<usize>());
        });
    }
}
