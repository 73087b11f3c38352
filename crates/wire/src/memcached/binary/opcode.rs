//! The numbers (opcodes) of the commands.

pub(super) const GET: u8 = 0x00;
pub(super) const SET: u8 = 0x01;
pub(super) const ADD: u8 = 0x02;
pub(super) const REPLACE: u8 = 0x03;
pub(super) const DELETE: u8 = 0x04;
pub(super) const INCREMENT: u8 = 0x05;
pub(super) const DECREMENT: u8 = 0x06;
pub(super) const QUIT: u8 = 0x07;
pub(super) const FLUSH: u8 = 0x08;
pub(super) const GETQ: u8 = 0x09;
pub(super) const NOOP: u8 = 0x0a;
pub(super) const VERSION: u8 = 0x0b;
pub(super) const GETK: u8 = 0x0c;
pub(super) const GETKQ: u8 = 0x0d;
pub(super) const APPEND: u8 = 0x0e;
pub(super) const PREPEND: u8 = 0x0f;
pub(super) const STAT: u8 = 0x10;
pub(super) const SETQ: u8 = 0x11;
pub(super) const ADDQ: u8 = 0x12;
pub(super) const REPLACEQ: u8 = 0x13;
pub(super) const DELETEQ: u8 = 0x14;
pub(super) const INCREMENTQ: u8 = 0x15;
pub(super) const DECREMENTQ: u8 = 0x16;
pub(super) const QUITQ: u8 = 0x17;
pub(super) const FLUSHQ: u8 = 0x18;
pub(super) const APPENDQ: u8 = 0x19;
pub(super) const PREPENDQ: u8 = 0x1a;
pub(super) const VERBOSITY: u8 = 0x1b;
pub(super) const TOUCH: u8 = 0x1c;
pub(super) const GAT: u8 = 0x1d;
pub(super) const GATQ: u8 = 0x1e;
pub(super) const SASL_MECHANISMS: u8 = 0x20;
pub(super) const SASL_AUTH: u8 = 0x21;
pub(super) const SASL_STEP: u8 = 0x22;
pub(super) const GATK: u8 = 0x23;
pub(super) const GATKQ: u8 = 0x24;

/// Returns for a quiet command its form with an answer, and true; for others the command itself,
/// and false.
#[inline]
pub(super) const fn loud(opcode: u8) -> (u8, bool) {
    let loud = match opcode {
        GETQ => GET,
        GETKQ => GETK,
        SETQ => SET,
        ADDQ => ADD,
        REPLACEQ => REPLACE,
        DELETEQ => DELETE,
        INCREMENTQ => INCREMENT,
        DECREMENTQ => DECREMENT,
        QUITQ => QUIT,
        FLUSHQ => FLUSH,
        APPENDQ => APPEND,
        PREPENDQ => PREPEND,
        GATQ => GAT,
        GATKQ => GATK,
        _ => return (opcode, false),
    };
    (loud, true)
}
