//! Runs a parser on bytes that arrive in pieces.

/// The result of one call of the parser.
pub(crate) enum Step {
    /// The parser returned this event.
    Said(String),
    /// The parser needs more bytes, this many in all.
    Need(usize),
}

/// Returns the events of `parse` when `bytes` arrive in pieces of these lengths, in turn. `parse`
/// returns the bytes consumed with each step, and may not need more than `need_max` bytes.
pub(crate) fn said(
    bytes: &[u8],
    pieces: &[usize],
    need_max: usize,
    mut parse: impl FnMut(&[u8]) -> (usize, Step),
) -> Vec<String> {
    let mut said = Vec::new();
    let (mut start, mut end) = (0, 0);
    for &piece in pieces.iter().cycle() {
        loop {
            let (consumed, step) = parse(&bytes[start..end]);
            start += consumed;
            assert!(start <= end);
            match step {
                Step::Need(need) => {
                    assert!(need > end - start && need <= need_max);
                    break;
                }
                Step::Said(what) => {
                    assert!(consumed > 0, "an event consumes bytes");
                    said.push(what);
                }
            }
        }
        if end == bytes.len() {
            break;
        }
        end = bytes.len().min(end + piece.max(1));
    }
    said
}
