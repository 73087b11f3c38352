//! Bytes that arrive in pieces.

/// What one call of a parser came to.
pub(crate) enum Step {
    /// It said this.
    Said(String),
    /// It waits for so many bytes.
    Need(usize),
}

/// Everything that `parse` says when `bytes` arrive in pieces of these lengths, in turn. It returns
/// with each step how many bytes are used up; never may it wait for more than `need_max` of them.
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
                    assert!(consumed > 0, "a step that says something uses something up");
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
