//! Tests of the work counted for the most expensive form of each binary command, alone and in a
//! pipeline.

use super::*;
use crate::tests::work::{BIG, PIPELINED, client, turns};
use crate::work::{COMMAND_MAX, TURN_MAX, rebuilt};

/// Commands that can cause more work than the bytes of their requests and answers suggest, with the
/// minimum work of each.
fn dearest() -> Vec<(Frame, u64)> {
    vec![
        (frame(APPEND, "big").with("x"), rebuilt(BIG)),
        (frame(PREPEND, "big").with("x"), rebuilt(BIG)),
        (frame(APPENDQ, "big").with("x"), rebuilt(BIG)),
        (frame(PREPENDQ, "big").with("x"), rebuilt(BIG)),
        (frame(STAT, ""), 4096),
        (frame(STAT, "settings"), 4096),
        (frame(STAT, "reset"), 4096),
        (frame(FLUSH, ""), 4096),
        (frame(FLUSHQ, ""), 4096),
    ]
}

#[test]
fn work_of_the_costliest_form_of_each_binary_command_is_counted_and_bounded() {
    for (frame, least) in dearest() {
        let (said, works) = turns(&mut client(), &frame.bytes());
        let status = said.get(6..8).unwrap_or(&[0, 0]);
        assert_eq!(status, [0, 0], "{:02x}: {}", frame.opcode, said.escape_ascii());
        let work: u64 = works.iter().sum();
        assert!((least..=COMMAND_MAX).contains(&work), "{:02x}: {works:?}", frame.opcode);
    }
}

#[test]
fn pipeline_of_expensive_binary_commands_is_split_over_several_scheduling_turns() {
    for (frame, _) in dearest() {
        let (_, alone) = turns(&mut client(), &frame.bytes());
        let input = [frame.bytes().repeat(PIPELINED), self::frame(NOOP, "").bytes()].concat();
        let (said, works) = turns(&mut client(), &input);
        let last = said[said.len() - 24..].first_chunk::<2>();
        assert_eq!(last, Some(&[0x81, NOOP]), "{:02x}", frame.opcode);
        let most = TURN_MAX + alone.iter().max().copied().unwrap_or_default();
        assert!(works.iter().all(|&work| work <= most), "{:02x}: {works:?}, alone {alone:?}", frame.opcode);
    }
}
